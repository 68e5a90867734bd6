//! Markers: a shape for each style, so that lines differ without colours, too.

use super::svg::{Ink, UNITS};
use plotters::coord::Shift;
use plotters::prelude::{
    Circle, Color, DrawingArea, DrawingAreaErrorKind, PathElement, Polygon, SVGBackend, ShapeStyle,
};
use std::io;

/// Area of a chart that is drawn to.
pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Error of drawing. Drawing to a text does not fail.
pub type DrawError = DrawingAreaErrorKind<io::Error>;

/// Half of the size of a marker, in units.
const RADIUS: i32 = 36;
/// Width of the lines of a hollow marker.
const OUTLINE: u32 = 14;

/// Shape of a marker.
enum Shape {
    Circle,
    /// Corners, in units from the middle.
    Polygon(&'static [(i32, i32)]),
    /// Lines through the middle.
    Cross(&'static [[(i32, i32); 2]]),
}

const SHAPES: [Shape; 8] = [
    Shape::Circle,
    Shape::Polygon(&[(-32, -32), (32, -32), (32, 32), (-32, 32)]),
    Shape::Polygon(&[(0, -44), (40, 30), (-40, 30)]),
    Shape::Polygon(&[(0, -46), (40, 0), (0, 46), (-40, 0)]),
    Shape::Polygon(&[(0, 44), (40, -30), (-40, -30)]),
    Shape::Cross(&[[(-36, -36), (36, 36)], [(-36, 36), (36, -36)]]),
    Shape::Cross(&[[(-46, 0), (46, 0)], [(0, -46), (0, 46)]]),
    Shape::Polygon(&[(0, -42), (40, -13), (25, 34), (-25, 34), (-40, -13)]),
];

/// Returns the style of a line of this width, in units.
pub fn stroke(ink: Ink, width: u32) -> ShapeStyle {
    ShapeStyle { color: ink.placeholder().to_rgba(), filled: false, stroke_width: width }
}

/// Draws a line through points in units.
pub fn path(canvas: &Canvas<'_>, points: Vec<(i32, i32)>, style: ShapeStyle) -> Result<(), DrawError> {
    canvas.draw(&PathElement::new(points, style))
}

/// Draws the marker of a style.
pub fn marker(canvas: &Canvas<'_>, style: usize, at: (i32, i32), ink: Ink, hollow: bool) -> Result<(), DrawError> {
    let moved = |corner: &(i32, i32)| (at.0 + corner.0, at.1 + corner.1);
    let inner = if hollow { Ink::Page } else { ink }.placeholder().filled();
    match &SHAPES[style % SHAPES.len()] {
        Shape::Circle => {
            canvas.draw(&Circle::new(at, RADIUS, inner))?;
            if hollow { canvas.draw(&Circle::new(at, RADIUS, stroke(ink, OUTLINE))) } else { Ok(()) }
        }
        Shape::Polygon(corners) => {
            canvas.draw(&Polygon::new(corners.iter().map(moved).collect::<Vec<_>>(), inner))?;
            let outline = corners.iter().chain(corners.first()).map(moved).collect();
            if hollow { path(canvas, outline, stroke(ink, OUTLINE)) } else { Ok(()) }
        }
        Shape::Cross(lines) => {
            let width = if hollow { OUTLINE } else { 2 * UNITS };
            lines.iter().try_for_each(|line| path(canvas, line.iter().map(moved).collect(), stroke(ink, width)))
        }
    }
}
