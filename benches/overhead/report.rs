//! The table and the JSON object.

/// The output at the end.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 4]>,
    values: Vec<(&'static str, f64)>,
    /// Figures with several values: the minimum, the maximum, the number.
    ranges: Vec<(&'static str, f64, f64, usize)>,
}

const KEYS: [&str; 13] = [
    "requests_per_pair",
    "pair_vs_bare",
    "allocations_per_pair",
    "syscalls_per_pair",
    "parallel_vs_bare",
    "handoff_cold_rtts",
    "watchdog_lost",
    "watchdog_cpu_s",
    "bytes_per_hold",
    "many_lost",
    "many_cpu_s",
    "many_bytes_per_hold",
    "idle_requests_per_s",
];

impl Report {
    /// Adds a row to the table; an empty text leaves the cell empty.
    pub(crate) fn row(&mut self, what: &str, redlatch: String, base: String, ratio: String) {
        self.rows.push([what.to_owned(), redlatch, base, ratio]);
    }

    pub(crate) fn value(&mut self, key: &'static str, value: f64) {
        assert!(KEYS.contains(&key), "a known key: {key}");
        self.values.push((key, value));
    }

    /// Records the values of which this figure is the median.
    pub(crate) fn range(&mut self, key: &'static str, values: &[f64]) {
        let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.ranges.push((key, lowest, highest, values.len()));
    }

    pub(crate) fn print(&self) {
        let head = ["", "redlatch", "bare", "redlatch / bare"].map(str::to_owned);
        let width = |column: usize| {
            let cells = self
                .rows
                .iter()
                .chain([&head])
                .map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2), width(3)];
        let line = |cells: &[String; 4]| {
            let [what, cells @ ..] = cells;
            print!("| {what:<0$} |", widths[0]);
            for (cell, width) in cells.iter().zip(&widths[1..]) {
                print!(" {cell:>width$} |");
            }
            println!();
        };
        line(&head);
        println!(
            "|{:-<w0$}|{:->w1$}:|{:->w2$}:|{:->w3$}:|",
            "",
            "",
            "",
            "",
            w0 = widths[0] + 2,
            w1 = widths[1] + 1,
            w2 = widths[2] + 1,
            w3 = widths[3] + 1
        );
        self.rows.iter().for_each(line);
        println!();
        for (key, lowest, highest, times) in &self.ranges {
            println!("{key}: {lowest:.3} to {highest:.3} in {times} runs");
        }
        let json: Vec<String> = KEYS
            .iter()
            .map(
                |key| match self.values.iter().find(|(known, _)| known == key) {
                    Some((_, value)) => format!("\"{key}\":{}", (value * 1000.0).round() / 1000.0),
                    None => format!("\"{key}\":null"),
                },
            )
            .collect();
        println!();
        println!("{{{}}}", json.join(","));
    }
}
