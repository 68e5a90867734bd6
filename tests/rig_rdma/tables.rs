//! Tables as perftest prints them, and as our benchmarks do.

/// A head, and rows of fields.
#[derive(Debug, PartialEq)]
pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns true if the columns are those of a table of perftest, whose names go on where these end.
    pub fn has_columns_of(&self, perftest: &Self) -> bool {
        let names = self.head.iter().zip(&perftest.head);
        self.head.len() == perftest.head.len()
            && names.into_iter().all(|(ours, theirs)| theirs.starts_with(ours.as_str()))
    }
}

/// Returns perftest's tables, which follow each line that begins with `#bytes`.
pub fn of_perftest(text: &str) -> Vec<Table> {
    let mut lines = text.lines().map(str::trim);
    let mut tables = Vec::new();
    while let Some(line) = lines.next() {
        if !line.starts_with("#bytes") {
            continue;
        }
        let is_row = |l: &&str| l.starts_with(|c: char| c.is_ascii_digit());
        let rows = lines.by_ref().take_while(is_row).map(|l| l.split_whitespace().map(str::to_owned).collect());
        tables.push(Table { head: names(line), rows: rows.collect() });
    }
    tables
}

/// Returns the names of columns. Some have two words: `BW peak[MB/sec]`, and perftest's `99% percentile[usec]`.
fn names(line: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        match names.last_mut() {
            Some(last) if last == "BW" || word.starts_with("percentile") => *last = format!("{last} {word}"),
            _ => names.push(word.to_owned()),
        }
    }
    names
}

/// Returns the rows of `bench shmem`: lines that begin with a digit, also after a rank.
pub fn rows_of_bench(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().map(|l| l.strip_prefix("[0]").unwrap_or(l).trim());
    let rows = lines.filter(|l| l.starts_with(|c: char| c.is_ascii_digit()));
    rows.map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn tables_are_read() {
    let text = "-----\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                65536      200              29.00              28.58  \t\t   0.000457\n-----\n";
    let tables = of_perftest(&[text, text].concat());
    let [table, again] = &tables[..] else { panic!("{tables:?}") };
    assert_eq!(table, again);
    assert_eq!(table.head, ["#bytes", "#iterations", "BW peak[MB/sec]", "BW average[MB/sec]", "MsgRate[Mpps]"]);
    assert_eq!(table.rows, [["65536", "200", "29.00", "28.58", "0.000457"]]);
    let text = "#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
                99% percentile[usec]   99.9% percentile[usec] \n 64  200  1 2 3 4 5 6 7\n";
    let tables = of_perftest(text);
    let [table] = &tables[..] else { panic!("{tables:?}") };
    assert_eq!((table.head.len(), table.rows[0].len()), (9, 9));
    assert_eq!(table.head[8], "99.9% percentile[usec]");
    let ours =
        "#bytes  #iterations   t_min   t_max t_typical   t_avg t_stdev     99%   99.9%\n 64  200  1 2 3 4 5 6 7\n";
    let [short] = &of_perftest(ours)[..] else { panic!("{ours}") };
    assert!(short.has_columns_of(table) && !table.has_columns_of(short), "{short:?}");
    assert_eq!(of_perftest("no table"), []);
    assert_eq!(rows_of_bench("# a\n[0]  8 1 0\n64 1 0\n"), [["8", "1", "0"], ["64", "1", "0"]]);
}
