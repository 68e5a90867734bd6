//! Compares the keys of values that no command writes without hardware with those of the schemas in `docs/schemas`. The package
//! `tests/schemas` validates reports as a whole.

use crate::tree;
use serde_json::Value;

/// A schema, and the file that its references start from.
#[derive(Clone)]
struct Schema {
    file: String,
    value: Value,
}

impl Schema {
    /// Returns the schema that a reference in `file` leads to.
    fn at(file: &str, reference: &str) -> Self {
        let (name, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let file = if name.is_empty() { file } else { name };
        let text = std::fs::read(tree::root().join("docs/schemas").join(file)).unwrap();
        let document: Value = serde_json::from_slice(&text).unwrap();
        let value = document.pointer(pointer).unwrap_or_else(|| panic!("{file} has no {pointer}")).clone();
        Self { file: file.to_owned(), value }
    }

    /// Returns the schemas that a value which is not null has to match together: this one, and those that it refers to.
    fn together(&self) -> Vec<Self> {
        let mut all = vec![self.clone()];
        if let Some(reference) = self.value["$ref"].as_str() {
            all.extend(Self::at(&self.file, reference).together());
        }
        let others = self.value["anyOf"].as_array().into_iter().flatten().filter(|one| one["type"] != "null");
        all.extend(others.flat_map(|one| Self { file: self.file.clone(), value: one.clone() }.together()));
        all
    }

    /// Calls `found` with each difference between the keys of a value and those of this schema.
    fn compare(&self, value: &Value, place: &str, found: &mut Vec<String>) {
        let all = self.together();
        match value {
            Value::Object(map) => {
                for (key, inner) in map {
                    let known = all.iter().find_map(|s| Some((s, s.value["properties"].get(key)?)));
                    match known {
                        Some((s, property)) => Self { file: s.file.clone(), value: property.clone() }.compare(
                            inner,
                            &format!("{place}/{key}"),
                            found,
                        ),
                        None => found.push(format!("{place} has {key}, and the schema has not")),
                    }
                }
                let required = all.iter().flat_map(|s| s.value["required"].as_array().into_iter().flatten());
                let missing = required.filter_map(Value::as_str).filter(|key| !map.contains_key(*key));
                found.extend(missing.map(|key| format!("{place} lacks {key}")));
            }
            Value::Array(list) => {
                let items = all
                    .iter()
                    .filter_map(|s| Some(Self { file: s.file.clone(), value: s.value.get("items")?.clone() }));
                items.for_each(|s| list.iter().for_each(|inner| s.compare(inner, place, found)));
            }
            _ => {}
        }
    }
}

/// Checks that an object has the keys of the schema at `reference`, as in `info.schema.json#/properties/world`, at every depth.
#[track_caller]
pub fn same(reference: &str, value: &impl serde::Serialize) {
    let mut value = serde_json::to_value(value).unwrap();
    let (schema, mut found) = (Schema::at("", reference), Vec::new());
    schema.compare(&value, "", &mut found);
    assert!(found.is_empty(), "{reference}: {found:#?}");
    // The comparison reaches the object: a key that the schema has not is found.
    value.as_object_mut().expect("an object").insert("another".to_owned(), Value::Null);
    schema.compare(&value, "", &mut found);
    assert_eq!(found, [" has another, and the schema has not"]);
}
