//! The parameters of statements.

use super::value::{Value, for_tuples};

/// The parameters of a statement: `()` for none; a tuple, array or `Vec` for `?`; [`Params::named`] for `:name`.
#[derive(Clone, Debug, Default)]
pub struct Params(pub(crate) ParamValues);

#[derive(Clone, Debug, Default)]
pub(crate) enum ParamValues {
    #[default]
    Nothing,
    InOrder(Vec<Value>),
    ByName(Vec<(String, Value)>),
}

impl Params {
    /// Makes named parameters; the statement may use each name more than once.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::mysql::{Params, Value};
    ///
    /// let params = Params::named([("id", Value::from(42)), ("note", "paid".into())]);
    /// # drop(params);
    /// ```
    pub fn named<N: Into<String>, V: Into<Value>>(
        params: impl IntoIterator<Item = (N, V)>,
    ) -> Params {
        let params = params.into_iter();
        Params(ParamValues::ByName(
            params
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        ))
    }

    fn in_order(values: Vec<Value>) -> Params {
        Params(if values.is_empty() {
            ParamValues::Nothing
        } else {
            ParamValues::InOrder(values)
        })
    }
}

impl From<()> for Params {
    fn from((): ()) -> Params {
        Params::default()
    }
}

impl<V: Into<Value>> From<Vec<V>> for Params {
    fn from(values: Vec<V>) -> Params {
        Params::in_order(values.into_iter().map(Into::into).collect())
    }
}

impl<V: Into<Value>, const N: usize> From<[V; N]> for Params {
    fn from(values: [V; N]) -> Params {
        Params::in_order(values.into_iter().map(Into::into).collect())
    }
}

macro_rules! from_tuple {
    ($($kind:ident $name:ident),+) => {
        impl<$($kind: Into<Value>),+> From<($($kind,)+)> for Params {
            fn from(($($name,)+): ($($kind,)+)) -> Params {
                Params::in_order(vec![$($name.into()),+])
            }
        }
    };
}

for_tuples!(from_tuple);
