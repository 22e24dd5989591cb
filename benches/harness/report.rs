//! The tables and the JSON object.

use super::median;

/// The output at the end.
pub(crate) struct Report {
    /// The keys of the JSON object.
    keys: &'static [&'static str],
    tables: Vec<Table>,
    values: Vec<(&'static str, f64)>,
    /// Figures with several values, in ascending order.
    ranges: Vec<(String, Vec<f64>)>,
    two_holders: usize,
}

pub(crate) struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Report {
    pub(crate) fn of(keys: &'static [&'static str]) -> Report {
        Report {
            keys,
            tables: Vec::new(),
            values: Vec::new(),
            ranges: Vec::new(),
            two_holders: 0,
        }
    }

    pub(crate) fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    pub(crate) fn value(&mut self, key: &'static str, value: f64) {
        assert!(self.keys.contains(&key), "a known key: {key}");
        self.values.push((key, value));
    }

    /// Adds the median of several values to the JSON object, and shows their range.
    pub(crate) fn values(&mut self, key: &'static str, values: Vec<f64>) {
        let mut sorted = values.clone();
        self.value(key, median(&mut sorted));
        self.range(key, values);
    }

    /// Shows the median and the range of several values.
    pub(crate) fn range(&mut self, figure: &str, mut values: Vec<f64>) {
        values.sort_by(f64::total_cmp);
        self.ranges.push((figure.to_owned(), values));
    }

    /// The medians and ranges so far, as a table.
    pub(crate) fn ranges(&self) -> Table {
        let head = ["", "median", "lowest", "highest", "runs"];
        let mut table = Table::new("Medians and ranges", &head);
        for (figure, values) in &self.ranges {
            let cells = [values.len() / 2, 0, values.len() - 1];
            let cells = cells.map(|at| format!("{:.3}", values[at]));
            let cells = [
                vec![figure.clone()],
                cells.to_vec(),
                vec![values.len().to_string()],
            ];
            table.row(cells.concat());
        }
        table
    }

    /// How often redlatch had two holders at once.
    pub(crate) fn two_holders(&mut self, times: usize) {
        self.two_holders += times;
    }

    /// Fails if redlatch had two holders at once.
    pub(crate) fn print(&self) {
        for table in &self.tables {
            println!();
            table.print();
        }
        if !self.ranges.is_empty() {
            println!();
            self.ranges().print();
        }
        let json = self.keys.iter().map(|key| {
            let value = self.values.iter().find(|(known, _)| known == key);
            match value {
                Some((_, value)) => format!("\"{key}\":{}", (value * 1000.0).round() / 1000.0),
                None => format!("\"{key}\":null"),
            }
        });
        let json: Vec<String> = json.collect();
        println!();
        println!("{{{}}}", json.join(","));
        assert_eq!(
            self.two_holders, 0,
            "redlatch had two holders at once so often"
        );
    }
}

impl Table {
    pub(crate) fn new(title: &str, head: &[&str]) -> Table {
        Table {
            title: title.to_owned(),
            rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a cell for each column");
        self.rows.push(cells);
    }

    fn print(&self) {
        println!("{}", self.title);
        println!();
        let widths: Vec<usize> = (0..self.rows[0].len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| row[column].chars().count());
                cells.max().unwrap_or(0)
            })
            .collect();
        for (index, row) in self.rows.iter().enumerate() {
            print!("| {:<1$} |", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                print!(" {cell:>width$} |");
            }
            println!();
            if index == 0 {
                print!("|{:-<1$}|", "", widths[0] + 2);
                for width in &widths[1..] {
                    print!("{:->1$}:|", "", width + 1);
                }
                println!();
            }
        }
    }
}
