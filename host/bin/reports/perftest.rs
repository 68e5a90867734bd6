//! Figures of perftest (`--out_json`): message rates in millions per second, times in microseconds. Rates in bytes are MiB/s, or
//! Gbit/s with `--report_gbits`; the report does not say which, but the message rate does.

use super::figure::{Figure, Samples, Subject, Unit};
use super::source::{Source, number, text};
use serde_json::Value;

/// Returns true if a document is a report of perftest.
pub fn is_report(document: &Value) -> bool {
    document.get("test_info").is_some() && document.get("results").is_some()
}

/// Reads the report of one size.
///
/// # Errors
/// Rates whose unit cannot be told.
pub fn read(document: &Value) -> Result<Source, String> {
    let (info, results) = (&document["test_info"], &document["results"]);
    let test = text(info, "test").unwrap_or("perftest");
    let row = match number(results, "MsgSize") {
        Some(bytes) => format!("{test}, {bytes} bytes"),
        None => test.to_owned(),
    };
    let mut figures = rates(&row, results)?;
    figures.extend(times(&row, results));
    Ok(Source {
        tool: "perftest".to_owned(),
        command: "perftest".to_owned(),
        subject: Subject::Device,
        device: text(info, "Device").map(str::to_owned),
        settings: ["Number_of_qps", "Connection_type", "TX_depth", "Post_List", "CQ_Moderation", "Mtu", "Link_type"]
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), info.get(key)?.to_string().trim_matches('"').to_owned())))
            .collect(),
        figures,
        ..Source::default()
    })
}

fn rates(row: &str, results: &Value) -> Result<Vec<Figure>, String> {
    let (Some(bytes), Some(rate), Some(messages)) =
        (number(results, "MsgSize"), number(results, "BW_average"), number(results, "MsgRate").filter(|n| *n > 0.0))
    else {
        return Ok(Vec::new());
    };
    let per_s = messages * 1e6;
    // Printed digits are few where messages are small.
    let is_near = |unit: f64| (rate * unit / (per_s * bytes) - 1.0).abs() < 0.05;
    let units = [(1024.0 * 1024.0, "MiB/s"), (1e9 / 8.0, "Gbit/s")];
    if !units.iter().any(|(unit, _)| is_near(*unit)) {
        return Err(format!(
            "{row}: {rate} is neither in MiB/s nor in Gbit/s the rate of {messages} million messages of {bytes} bytes per second, so its unit is unknown"
        ));
    }
    Ok(vec![
        Figure::one(row, "messages per s", Unit::PerS, per_s),
        Figure::one(row, "bytes per s", Unit::BytesPerS, per_s * bytes),
    ])
}

fn times(row: &str, results: &Value) -> Vec<Figure> {
    let metrics =
        [("t_typical", "latency p50"), ("percentile_99", "latency p99"), ("percentile_99.9", "latency p99.9")];
    let us = |key: &str| number(results, key).filter(|us| *us > 0.0).map(|us| us * 1e3);
    let mut figures: Vec<Figure> =
        metrics.iter().filter_map(|(key, metric)| Some(Figure::one(row, *metric, Unit::Ns, us(key)?))).collect();
    if let Some(mean) = us("t_avg") {
        let samples = match (number(results, "t_stdev"), number(results, "n_iterations")) {
            (Some(stdev), Some(count)) if stdev > 0.0 => {
                Samples::Mean { mean, deviation: stdev * 1e3 / mean, count: count as u64 }
            }
            _ => Samples::Values(vec![mean]),
        };
        figures.push(Figure::new(row, "latency mean", Unit::Ns, samples));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bandwidth(average: f64) -> Value {
        json!({ "test_info": { "test": "RDMA_Write_BW_Test", "Device": "mlx5_0", "Number_of_qps": 1, "TX_depth": 128 },
                "results": { "MsgSize": 65536, "n_iterations": 5000, "BW_peak": 0.0, "BW_average": average, "MsgRate": 0.37253 } })
    }

    #[test]
    fn both_units_give_the_rate_of_the_messages() {
        for average in [23283.1, 195.31] {
            let source = read(&bandwidth(average)).unwrap();
            assert!(is_report(&bandwidth(average)));
            let rates: Vec<_> = source.figures.iter().map(|f| (f.metric.as_str(), f.samples.middle())).collect();
            assert_eq!(rates, [("messages per s", 372_530.0), ("bytes per s", 372_530.0 * 65536.0)]);
            assert_eq!(source.figures[0].row, "RDMA_Write_BW_Test, 65536 bytes");
        }
        assert!(read(&bandwidth(1000.0)).unwrap_err().contains("its unit is unknown"));
    }

    #[test]
    fn times_are_microseconds() {
        let report = json!({ "test_info": { "test": "RDMA_Write_Latency_Test" }, "results": { "MsgSize": 2, "n_iterations": 1000,
            "t_min": 0.9, "t_max": 9.0, "t_typical": 1.0, "t_avg": 1.25, "t_stdev": 0.125, "percentile_99": 2.0, "percentile_99.9": 4.0 } });
        let source = read(&report).unwrap();
        let of = |metric: &str| source.figures.iter().find(|f| f.metric == metric).unwrap().samples.clone();
        assert_eq!(of("latency p99.9"), Samples::Values(vec![4000.0]));
        assert_eq!(of("latency mean"), Samples::Mean { mean: 1250.0, deviation: 0.1, count: 1000 });
    }
}
