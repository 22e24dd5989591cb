//! Tables as the server describes them.

use std::sync::Arc;
use std::time::Instant;

use ::mysql::prelude::FromRow;
use ::mysql::{Params, params};

use super::MySql;
use super::keys::Ident;
use crate::ground::error::{Error, Result};

/// One column as the server describes it.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    name: String,
    pub(super) kind: String,
    pub(super) is_nullable: bool,
    /// The length of the longest value in bytes, for a text or binary column.
    pub(super) length: Option<u64>,
    /// The decimals of a second.
    pub(crate) decimals: Option<u64>,
}

impl Column {
    pub(crate) fn is_integer(&self) -> bool {
        matches!(
            &*self.kind,
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint"
        )
    }

    pub(crate) fn is_time(&self) -> bool {
        matches!(&*self.kind, "datetime" | "timestamp")
    }

    pub(crate) fn is_nullable(&self) -> bool {
        self.is_nullable
    }

    pub(super) fn is_text(&self) -> bool {
        [
            "char", "text", "binary", "blob", "enum", "set", "uuid", "inet",
        ]
        .iter()
        .any(|part| self.kind.contains(part))
    }
}

/// A table as the server describes it.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) columns: Vec<Column>,
    /// For each: the index, the column, and whether the index has only a prefix of the column.
    pub(super) indexes: Vec<(String, String, bool)>,
}

impl Description {
    pub(super) fn primary_key(&self) -> Vec<(&str, bool)> {
        self.indexes
            .iter()
            .filter(|(index, ..)| index == "PRIMARY")
            .map(|(_, column, is_cut)| (&**column, *is_cut))
            .collect()
    }

    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns
            .iter()
            .find(|column| column.name.eq_ignore_ascii_case(name))
    }
}

impl MySql {
    pub(super) fn describe(
        &self,
        table: &Ident,
        subject: &Arc<str>,
        deadline: Instant,
    ) -> Result<Description> {
        let of_table = || params! { "t" => table.as_str() };
        let engine: Vec<(Option<String>,)> = self.query_as(
            "SELECT ENGINE FROM information_schema.TABLES \
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :t",
            of_table(),
            subject,
            deadline,
        )?;
        let Some((engine,)) = engine.into_iter().next() else {
            return Err(self.schema_error(
                subject,
                table,
                "it does not exist, or this user has no right to it",
            ));
        };
        let engine = engine.unwrap_or_else(|| "a view".to_owned());
        if !engine.eq_ignore_ascii_case("InnoDB") {
            return Err(self.schema_error(
                subject,
                table,
                &format!("its engine is {engine}, which locks no rows: it has to be InnoDB"),
            ));
        }
        type Told = (String, String, String, Option<u64>, Option<u64>);
        let columns: Vec<Told> = self.query_as(
            "SELECT COLUMN_NAME, DATA_TYPE, IS_NULLABLE, CHARACTER_OCTET_LENGTH, DATETIME_PRECISION \
             FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :t",
            of_table(),
            subject,
            deadline,
        )?;
        let indexes: Vec<(String, String, Option<u64>)> = self.query_as(
            "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS \
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :t ORDER BY INDEX_NAME, SEQ_IN_INDEX",
            of_table(),
            subject,
            deadline,
        )?;
        Ok(Description {
            columns: columns
                .into_iter()
                .map(|(name, kind, nullable, length, decimals)| Column {
                    name,
                    kind: kind.to_ascii_lowercase(),
                    is_nullable: nullable.eq_ignore_ascii_case("YES"),
                    length,
                    decimals,
                })
                .collect(),
            indexes: indexes
                .into_iter()
                .map(|(index, column, cut)| (index, column, cut.is_some()))
                .collect(),
        })
    }

    pub(super) fn query_as<T: FromRow>(
        &self,
        statement: &str,
        params: Params,
        subject: &Arc<str>,
        deadline: Instant,
    ) -> Result<Vec<T>> {
        let rows = self
            .query(statement, params, deadline)
            .map_err(|error| self.error(subject, error))?;
        rows.into_iter()
            .map(|row| {
                T::from_row_opt(row).map_err(|_| Error::Unexpected {
                    lock: Arc::clone(subject),
                    node: Arc::clone(self.node()),
                    reason: "its description of a table cannot be read".to_owned(),
                })
            })
            .collect()
    }
}
