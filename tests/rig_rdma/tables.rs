//! Tables as perftest prints them, and as our benchmarks do.

/// A head, and rows of fields.
#[derive(Debug, PartialEq)]
pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// The table below the line that begins with `#bytes`: perftest's. Its head has names of several words, so that fields are told apart by
/// what perftest calls them.
pub fn of_perftest(text: &str) -> Option<Table> {
    let mut lines = text.lines().map(str::trim).skip_while(|l| !l.starts_with("#bytes"));
    let head = lines.next()?;
    // `99% percentile[usec]` is one name, as is `BW peak[MB/sec]`.
    let words: Vec<&str> = head.split_whitespace().collect();
    let mut names: Vec<String> = Vec::new();
    for word in words {
        match names.last_mut() {
            Some(last) if last == "BW" || last.ends_with('%') => *last = format!("{last} {word}"),
            _ => names.push(word.to_owned()),
        }
    }
    let is_row = |l: &&str| l.starts_with(|c: char| c.is_ascii_digit());
    let rows = lines.take_while(is_row).map(|l| l.split_whitespace().map(str::to_owned).collect()).collect();
    Some(Table { head: names, rows })
}

/// Rows of `bench shmem`: lines that begin with a digit, also behind a rank.
pub fn rows_of_bench(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().map(|l| l.strip_prefix("[0]").unwrap_or(l).trim());
    let rows = lines.filter(|l| l.starts_with(|c: char| c.is_ascii_digit()));
    rows.map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn tables_are_read() {
    let text = "-----\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                65536      200              29.00              28.58  \t\t   0.000457\n-----\n";
    let table = of_perftest(text).unwrap();
    assert_eq!(table.head, ["#bytes", "#iterations", "BW peak[MB/sec]", "BW average[MB/sec]", "MsgRate[Mpps]"]);
    assert_eq!(table.rows, [["65536", "200", "29.00", "28.58", "0.000457"]]);
    let text = "#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
                99% percentile[usec]   99.9% percentile[usec] \n 64  200  1 2 3 4 5 6 7\n";
    let table = of_perftest(text).unwrap();
    assert_eq!((table.head.len(), table.rows[0].len()), (9, 9));
    assert_eq!(table.head[8], "99.9% percentile[usec]");
    assert_eq!(of_perftest("no table"), None);
    assert_eq!(rows_of_bench("# a\n[0]  8 1 0\n64 1 0\n"), [["8", "1", "0"], ["64", "1", "0"]]);
}
