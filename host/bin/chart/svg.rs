//! Document of a chart: colours for light and dark pages, title, description, and text that is safe in XML.
//!
//! The backend of `plotters` writes fixed colours. Drawing uses a placeholder for each colour of a chart, in whose place the document
//! gets the colour for light pages and a class, to which a style sheet gives the colour for dark ones.

use crate::output::printable;
use plotters::style::RGBColor;
use std::fmt::Write;

/// Units of the drawing in a pixel. The backend rounds to whole units.
pub const UNITS: u32 = 10;

/// Colours of lines on light and dark pages: those of Okabe and Ito (Color Universal Design, 2008), which people with
/// any colour vision tell apart. Black and yellow are replaced where the page has nearly their colour.
const LINES: [(&str, &str); 8] = [
    ("#0072B2", "#3D95DB"),
    ("#D55E00", "#EC7A35"),
    ("#009E73", "#2BBF93"),
    ("#CC79A7", "#DB93BC"),
    ("#E69F00", "#F0B030"),
    ("#56B4E9", "#9AD4F7"),
    ("#000000", "#FFFFFF"),
    ("#9C8B00", "#F0E442"),
];
/// Length of a dash and of the gap behind it.
const DASHES: &str = "60 40";

/// Colour of a part of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Page,
    Text,
    /// That of texts, with dashes.
    Dashes,
    Faint,
    Grid,
    /// Colour of a line, by its style.
    Line(usize),
    /// Colour of a dashed line, by its style.
    Dashed(usize),
}

impl Ink {
    /// Returns all colours.
    fn all() -> impl Iterator<Item = Self> {
        let lines = (0..LINES.len()).flat_map(|style| [Self::Line(style), Self::Dashed(style)]);
        [Self::Page, Self::Text, Self::Dashes, Self::Faint, Self::Grid].into_iter().chain(lines)
    }

    /// Returns the number of the colour, which is below 256.
    fn number(self) -> u8 {
        match self {
            Self::Page => 0,
            Self::Text => 1,
            Self::Dashes => 2,
            Self::Faint => 3,
            Self::Grid => 4,
            Self::Line(style) => 16 + (style % LINES.len()) as u8,
            Self::Dashed(style) => 32 + (style % LINES.len()) as u8,
        }
    }

    /// Returns the colour that stands for this one while the chart is drawn.
    pub fn placeholder(self) -> RGBColor {
        RGBColor(1, 2, self.number())
    }

    /// Returns the colours on light and dark pages.
    fn colours(self) -> (&'static str, &'static str) {
        match self {
            Self::Page => ("#FFFFFF", "#0D1117"),
            Self::Text | Self::Dashes => ("#1F2328", "#E6EDF3"),
            Self::Faint => ("#59636E", "#9DA7B1"),
            Self::Grid => ("#DDE2E7", "#2B313A"),
            Self::Line(style) | Self::Dashed(style) => LINES[style % LINES.len()],
        }
    }
}

/// Makes the document of what the backend has drawn, `width` and `height` pixels large.
pub fn document(drawn: &str, (width, height): (u32, u32), title: &str, description: &str) -> String {
    let body = drawn.split_once('\n').map_or("", |(_, body)| body);
    let body = Ink::all().fold(body.to_owned(), |body, ink| coloured(&body, ink));
    let mut text = String::with_capacity(body.len() + 4096);
    let (units_x, units_y) = (width * UNITS, height * UNITS);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {units_x} {units_y}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\">"
    );
    let _ = writeln!(text, "<title>{}</title>\n<desc>{}</desc>", escaped(title), escaped(description));
    text + "<style>\n@media (prefers-color-scheme: dark) {\n" + &dark(&body) + "}\n</style>\n" + &body
}

/// Replaces the placeholder of a colour.
fn coloured(body: &str, ink: Ink) -> String {
    let RGBColor(red, green, blue) = ink.placeholder();
    let number = ink.number();
    let light = ink.colours().0;
    let dashes = if matches!(ink, Ink::Dashed(_) | Ink::Dashes) {
        format!(" stroke-dasharray=\"{DASHES}\"")
    } else {
        String::new()
    };
    let placeholder = |attribute: &str| format!("{attribute}=\"#{red:02X}{green:02X}{blue:02X}\"");
    let stroke = format!("class=\"warpbell-s{number}\" stroke=\"{light}\"{dashes}");
    let fill = format!("class=\"warpbell-f{number}\" fill=\"{light}\"");
    body.replace(&placeholder("stroke"), &stroke).replace(&placeholder("fill"), &fill)
}

/// Returns the rules for dark pages, of the colours that the drawing has.
fn dark(body: &str) -> String {
    let rules = |ink: Ink| {
        let (number, colour) = (ink.number(), ink.colours().1);
        let rule = move |(class, property): (&str, &str)| {
            let class = format!("warpbell-{class}{number}");
            (format!("\"{class}\""), format!(".{class} {{ {property}: {colour} }}\n"))
        };
        [("s", "stroke"), ("f", "fill")].map(rule)
    };
    let used = Ink::all().flat_map(rules).filter(|(class, _)| body.contains(class.as_str()));
    used.map(|(_, rule)| rule).collect()
}

/// Replaces characters that XML does not allow. The backend escapes those that have a meaning in XML.
pub fn allowed(text: &str) -> String {
    printable(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}").replace(['\n', '\t'], " ")
}

fn escaped(text: &str) -> String {
    allowed(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_colour_has_a_placeholder_and_lines_differ_on_light_and_dark_pages() {
        let numbers: BTreeSet<u8> = Ink::all().map(Ink::number).collect();
        assert_eq!(numbers.len(), Ink::all().count());
        let (light, dark): (BTreeSet<&str>, BTreeSet<&str>) = LINES.into_iter().unzip();
        assert_eq!((light.len(), dark.len()), (LINES.len(), LINES.len()));
    }

    #[test]
    fn placeholders_become_colours_and_classes() {
        let drawn =
            "<svg>\n<line opacity=\"1\" stroke=\"#010220\"/>\n<text fill=\"#010201\">\n#010201\n</text>\n</svg>\n";
        let text = document(drawn, (800, 100), "a<b", "\"c\"&\u{1}");
        let line = "<line opacity=\"1\" class=\"warpbell-s32\" stroke=\"#0072B2\" stroke-dasharray=\"60 40\"/>";
        for part in
            [line, "fill=\"#1F2328\">\n#010201", "<title>a&lt;b</title>", "<desc>&quot;c&quot;&amp;\\u{1}</desc>"]
        {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(text.contains("viewBox=\"0 0 8000 1000\"") && text.contains(".warpbell-f1 { fill: #E6EDF3 }"));
        assert!(!text.contains(".warpbell-s1 "), "no rule that nothing needs");
    }

    #[test]
    fn characters_that_xml_forbids_are_replaced() {
        assert_eq!(allowed("a\u{0}b\u{ffff}c\nd"), "a\\u{0}b\u{fffd}c d");
    }
}
