//! Lines of all kinds of charts, divided into groups and named.

use super::model::{Group, Panel};
use super::names::{Key, Names, groups, names};
use crate::reports::Source;
use warpbell::units::counted;

/// A report, and its name in the chart.
pub struct Input {
    pub name: String,
    pub source: Source,
}

/// Panels of a chart.
#[derive(Debug)]
pub struct Contents {
    pub groups: Vec<Group>,
    /// Settings that all lines have.
    pub common: Vec<String>,
    pub notes: Vec<String>,
}

/// Reason why a report cannot be drawn.
#[derive(Debug, PartialEq)]
pub enum Unsuited {
    /// There are more lines than panels can show.
    Lines(usize),
    /// There are more rows without a swept number than a panel can show.
    Rows(usize),
    /// No value has a place on an axis.
    Nothing,
}

/// Divides lines into groups, whose panels `panels` makes from the places of keys. The place of a key in its group is
/// the style of its lines.
///
/// # Errors
/// [`Unsuited::Lines`] if the lines are too many, [`Unsuited::Nothing`] if no group has a panel.
pub fn divided(keys: &[Key], mut panels: impl FnMut(&[usize]) -> Vec<Panel>) -> Result<Contents, Unsuited> {
    let common = names(keys).common;
    let divided = groups(keys).map_err(Unsuited::Lines)?;
    let is_one = divided.len() == 1;
    let mut groups = Vec::new();
    for members in divided {
        let of_group: Vec<Key> = members.iter().filter_map(|place| keys.get(*place).cloned()).collect();
        let Names { lines, common: of_group } = names(&of_group);
        let heading: Vec<String> = of_group.into_iter().filter(|text| !common.contains(text)).collect();
        let heading = (!is_one && !heading.is_empty()).then(|| heading.join(", "));
        let panels = panels(&members);
        if !panels.is_empty() {
            groups.push(Group { heading, legend: lines, panels });
        }
    }
    if groups.is_empty() { Err(Unsuited::Nothing) } else { Ok(Contents { groups, common, notes: Vec::new() }) }
}

/// Returns a note about values that have no place on an axis: negative ones, or zero where the axis is logarithmic.
pub fn left_out(values: u64) -> Option<String> {
    (values > 0).then(|| format!("left out: {} that an axis cannot show", counted(values, "value", "values")))
}

/// Returns a note about values that are no finite numbers.
pub fn not_finite(values: u64) -> Option<String> {
    let all = counted(values, "value that is", "values that are");
    (values > 0).then(|| format!("left out: {all} not finite"))
}

/// Values of keys, in the order in which the keys were met first.
pub struct Keyed<T> {
    pub keys: Vec<Key>,
    pub values: Vec<T>,
}

impl<T: Default> Keyed<T> {
    pub fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }

    /// Applies a change to the value of a key, which is new if the key is.
    pub fn change(&mut self, key: Key, change: impl FnOnce(&mut T)) {
        match self.keys.iter().position(|known| *known == key).and_then(|place| self.values.get_mut(place)) {
            Some(value) => change(value),
            None => {
                let mut value = T::default();
                change(&mut value);
                self.keys.push(key);
                self.values.push(value);
            }
        }
    }
}
