//! Methods that set one option each; stands on nothing.

/// Gives an option structure a method for each field, with which programs of other crates fill in what they want: the structures are
/// `#[non_exhaustive]`. `setters!(Options { depth: u32, wide: bool })`.
macro_rules! setters {
    ($name:ident $(<$life:lifetime>)? { $($field:ident: $type:ty),+ $(,)? }) => {
        impl $(<$life>)? $name $(<$life>)? {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](", stringify!($name), "#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
pub(crate) use setters;
