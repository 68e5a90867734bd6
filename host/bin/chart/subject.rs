//! Title of a chart, and facts about the subject of its reports.

use super::contents::Input;
use crate::reports::{Source, Subject};
use std::path::Path;

/// Returns command and engine. The engine is left out if it is not that of all reports.
pub fn title(inputs: &[Input]) -> String {
    let mut commands: Vec<&str> = Vec::new();
    for input in inputs {
        if !commands.contains(&input.source.command.as_str()) {
            commands.push(&input.source.command);
        }
    }
    let commands = commands.join(" and ");
    match engine_of_all(inputs) {
        Some(engine) => format!("{commands}, {engine}"),
        None => commands,
    }
}

fn engine_of_all(inputs: &[Input]) -> Option<&str> {
    let first = inputs.first()?.source.engine.as_deref();
    inputs.iter().all(|input| input.source.engine.as_deref() == first).then_some(first)?
}

/// Returns a line about the subject of all reports, or one for each report.
pub fn facts(inputs: &[Input]) -> Vec<String> {
    let with_engine = engine_of_all(inputs).is_none();
    let all: Vec<String> = inputs.iter().map(|input| fact(&input.source, with_engine)).collect();
    match all.first() {
        Some(first) if all.iter().all(|fact| fact == first) => vec![first.clone()],
        _ => inputs.iter().zip(all).map(|(input, fact)| format!("{}: {fact}", input.name)).collect(),
    }
}

fn fact(source: &Source, with_engine: bool) -> String {
    let subject = match (source.subject, source.device.as_deref()) {
        (Subject::Unknown, device) => device.map(without_model),
        (subject, Some(device)) => Some(format!("{subject} {}", without_model(device))),
        // The subject is what the command itself names.
        (Subject::Device, None) => None,
        (subject, None) => Some(subject.to_string()),
    };
    let tool =
        source.tool.strip_suffix(&source.command).map_or(source.tool.as_str(), |tool| tool.trim_end_matches(", "));
    let engine = source.engine.clone().filter(|_| with_engine);
    let models = models(source.device.as_deref().unwrap_or_default()).into_iter().map(|name| format!("model {name}"));
    engine.into_iter().chain(subject).chain(models).chain([tool.to_owned()]).collect::<Vec<_>>().join(", ")
}

/// Returns a specification without the option that names a model.
fn without_model(device: &str) -> String {
    let parts: Vec<&str> = device.split(',').filter(|part| !part.starts_with("model=")).collect();
    parts.join(",")
}

/// Returns the models that specifications of devices name.
fn models(device: &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in device.split([',', ' ']).filter_map(|option| option.strip_prefix("model=")) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns names for the lines of several reports: those of the files without their folders if they differ. Of equal
/// names, the second and further ones get a number.
pub fn short_names(names: &[String]) -> Vec<String> {
    let file =
        |name: &String| Path::new(name).file_name().map_or(name.clone(), |name| name.to_string_lossy().into_owned());
    let files: Vec<String> = names.iter().map(file).collect();
    let is_one_of = |i: usize, of: &[String]| of.iter().filter(|other| **other == of[i]).count() == 1;
    let base: Vec<String> =
        (0..names.len()).map(|i| if is_one_of(i, &files) { files[i].clone() } else { names[i].clone() }).collect();
    let numbered = |i: usize| match base[..i].iter().filter(|other| **other == base[i]).count() {
        0 => base[i].clone(),
        before => format!("{} ({})", base[i], before + 1),
    };
    (0..base.len()).map(numbered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, engine: &str, device: &str) -> Input {
        let source = Source {
            tool: "warpbell 0.1.0, bench nvme".to_owned(),
            command: "bench nvme".to_owned(),
            engine: Some(engine.to_owned()),
            device: Some(device.to_owned()),
            subject: if device.contains("soft:") { Subject::SoftwareDevice } else { Subject::Device },
            ..Source::default()
        };
        Input { name: name.to_owned(), source }
    }

    #[test]
    fn the_title_says_where_kernels_ran_and_facts_on_what() {
        let one = [input("a.json", "2 CPU threads", "soft:mem:64M,model=pm1733")];
        assert_eq!(title(&one), "bench nvme, 2 CPU threads");
        assert_eq!(facts(&one), ["software device soft:mem:64M, model pm1733, warpbell 0.1.0"]);
        let equal = [input("a.json", "NVIDIA H200", "nvme:0"), input("b.json", "NVIDIA H200", "nvme:0")];
        assert_eq!(
            (title(&equal), facts(&equal)),
            ("bench nvme, NVIDIA H200".into(), vec!["device nvme:0, warpbell 0.1.0".to_owned()])
        );
        let different = [input("a.json", "NVIDIA H200", "nvme:0"), input("b.json", "2 CPU threads", "soft:mem")];
        assert_eq!(title(&different), "bench nvme");
        assert_eq!(
            facts(&different),
            [
                "a.json: NVIDIA H200, device nvme:0, warpbell 0.1.0",
                "b.json: 2 CPU threads, software device soft:mem, warpbell 0.1.0"
            ]
        );
    }

    #[test]
    fn models_are_named_once() {
        assert_eq!(models("soft:a,model=x y,model=x soft:b,model=z"), ["x", "z"]);
        assert_eq!(models("soft:model.img"), [""; 0]);
    }

    #[test]
    fn files_of_one_name_are_told_apart() {
        let short = |names: &[&str]| short_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(short(&["x/a.json", "x/b.json"]), ["a.json", "b.json"]);
        assert_eq!(short(&["x/a.json", "y/a.json"]), ["x/a.json", "y/a.json"]);
        assert_eq!(short(&["x/a.json", "x/a.json", ""]), ["x/a.json", "x/a.json (2)", ""]);
    }
}
