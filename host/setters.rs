//! Setter methods of option structures; uses no other module.

/// Gives an option structure one setter per field: `setters!(Options { depth: u32, wide: bool })`. Programs of other
/// crates need setters to fill in options, because the structures are `#[non_exhaustive]`.
macro_rules! setters {
    ($name:ident $(<$life:lifetime>)? { $($field:ident: $type:ty),+ $(,)? }) => {
        #[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "options of what is not promised have setters, too"))]
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
