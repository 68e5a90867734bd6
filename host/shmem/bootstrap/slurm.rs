//! Parsing of Slurm's short forms: lists of hosts, and lists of tasks on each node.

/// The largest number of hosts in a list: far more than any machine has.
const MOST_HOSTS: usize = 1 << 17;

/// Expands a list of hosts: `gpu[01-03,07],login` is `gpu01 gpu02 gpu03 gpu07 login`.
///
/// Several brackets in one name multiply; the last one varies fastest (`hostlist_expand` of Slurm).
pub(super) fn hosts(list: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for name in split(list)? {
        if name.is_empty() {
            return Err("it has an empty name".to_owned());
        }
        expand(name, &mut all)?;
    }
    Ok(all)
}

/// Returns the first of a list of hosts.
pub(super) fn first_host(list: &str) -> Result<String, String> {
    hosts(list)?.into_iter().next().ok_or_else(|| "it is empty".to_owned())
}

/// Returns the number of tasks on node `node`. In `4(x2),3` the nodes have 4, 4 and 3 tasks.
pub(super) fn tasks_on(list: &str, node: usize) -> Option<usize> {
    let mut before = 0usize;
    for part in list.split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return tasks.parse().ok();
        }
    }
    None
}

/// Splits a list at the commas outside brackets.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut names, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if inside => return Err("it has a bracket inside brackets".to_owned()),
            ']' if !inside => return Err("it closes a bracket that it does not open".to_owned()),
            '[' | ']' => inside = !inside,
            ',' if !inside => {
                names.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("it does not close a bracket".to_owned());
    }
    names.push(&list[start..]);
    Ok(names)
}

fn expand(name: &str, all: &mut Vec<String>) -> Result<(), String> {
    let mut so_far = vec![String::new()];
    let mut rest = name;
    while let Some((fixed, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']').ok_or("it does not close a bracket")?;
        let numbers = numbers(ranges)?;
        if so_far.len().saturating_mul(numbers.len()).saturating_add(all.len()) > MOST_HOSTS {
            return Err(format!("it names more than {MOST_HOSTS} hosts"));
        }
        so_far = so_far.iter().flat_map(|s| numbers.iter().map(move |n| format!("{s}{fixed}{n}"))).collect();
        rest = after;
    }
    if so_far.len().saturating_add(all.len()) > MOST_HOSTS {
        return Err(format!("it names more than {MOST_HOSTS} hosts"));
    }
    all.extend(so_far.into_iter().map(|s| s + rest));
    Ok(())
}

/// Expands `01-03,7` to 01, 02, 03 and 7. All numbers of a range have the width of its first number.
fn numbers(ranges: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |s: &str| {
            let digits = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
            digits
                .then(|| s.parse::<u64>().ok())
                .flatten()
                .ok_or_else(|| format!("`{range}` is not a range of numbers"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(format!("`{range}` runs backwards"));
        }
        if (to - from) as usize >= MOST_HOSTS - all.len().min(MOST_HOSTS) {
            return Err(format!("it names more than {MOST_HOSTS} hosts"));
        }
        all.extend((from..=to).map(|n| format!("{n:0width$}", width = first.len())));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_expand_as_slurm_expands_them() {
        for (list, expected) in [
            ("node1", "node1"),
            ("a,b,c", "a b c"),
            ("node[01-03,7],x", "node01 node02 node03 node7 x"),
            ("gpu[08-11]", "gpu08 gpu09 gpu10 gpu11"),
            ("n[9-11]", "n9 n10 n11"),
            ("r[0-1]n[1-2].local", "r0n1.local r0n2.local r1n1.local r1n2.local"),
            ("a[1],b-2", "a1 b-2"),
        ] {
            assert_eq!(hosts(list).unwrap().join(" "), expected, "{list}");
        }
        assert_eq!(first_host("tux[05-99],a").unwrap(), "tux05");
    }

    #[test]
    fn lists_that_are_none_say_what_is_wrong() {
        for list in ["", "a,,b", "a[", "a]", "a[]", "a[1-]", "a[3-1]", "a[x]", "a[[1]]", "a[1,]", "a[-1]", "a[+1]"] {
            assert!(hosts(list).is_err(), "{list}");
        }
        // Short lists that stand for more hosts than fit into memory.
        for list in ["a[0-18446744073709551615]", "a[0-99999][0-99999]", "a[0-99999],b[0-99999]"] {
            assert!(hosts(list).unwrap_err().contains("more than"), "{list}");
        }
    }

    #[test]
    fn tasks_of_a_node() {
        assert_eq!([0, 1, 2, 3].map(|n| tasks_on("4(x2),3", n)), [Some(4), Some(4), Some(3), None]);
        assert_eq!(tasks_on("8", 0), Some(8));
        for bad in ["", "x", "4(x", "4(y2)", "4(x2", "(x2)"] {
            assert_eq!(tasks_on(bad, 0), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_expands_or_is_refused(list in "[a-c0-9,\\[\\]-]{0,40}") {
            if let Ok(all) = hosts(&list) {
                prop_assert!(all.len() <= MOST_HOSTS);
                prop_assert!(all.iter().all(|h| !h.is_empty() && !h.contains(['[', ']', ','])));
            }
        }

        #[test]
        fn any_bytes_are_no_reason_to_panic(list in ".{0,40}", node in 0usize..9) {
            let _ = hosts(&list);
            let _ = tasks_on(&list, node);
        }

        #[test]
        fn a_range_names_what_it_says(prefix in "[a-z]{1,8}", first in 0u64..10_000, n in 0u64..200, width in 1usize..6) {
            let list = format!("{prefix}[{first:0width$}-{}]", first + n);
            let expected: Vec<String> = {
                let width = format!("{first:0width$}").len();
                (first..=first + n).map(|i| format!("{prefix}{i:0width$}")).collect()
            };
            prop_assert_eq!(hosts(&list).unwrap(), expected);
        }

        #[test]
        fn plain_lists_are_themselves(names in prop::collection::vec("[a-z][a-z0-9.-]{0,10}", 1..20)) {
            prop_assert_eq!(hosts(&names.join(",")).unwrap(), names);
        }
    }
}
