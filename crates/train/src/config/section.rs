//! `section!`: one declaration a field, from which come the struct, its default, its documentation and what it may be.

/// Declares a section's struct with its defaults, and its entry for [`SECTIONS`](super::fields::SECTIONS).
///
/// A field is written `name: type = default, kind, unit, paper;` under the comment that tells its meaning. A struct of
/// another crate that lies in the section as a table of its own is written `table name: type, meaning;` before the
/// fields, and has its own entry.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $name:ident in $path:literal {
            $(table $table:ident: $table_type:ty, $table_about:literal;)*
            $(
                $(#[doc = $meaning:literal])+
                $field:ident: $type:ty = $default:expr, $kind:expr, $unit:literal, $paper:expr;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $(
                $(#[doc = $meaning])+
                pub $field: $type,
            )+
            $(
                #[doc = $table_about]
                pub $table: $table_type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ $($table: Default::default(),)* }
            }
        }

        impl $name {
            pub(super) const SECTION: $crate::config::field::Section = $crate::config::field::Section {
                path: $path,
                about: concat!($($about),+),
                fields: &[$(
                    $crate::config::field::Field {
                        path: concat!($path, ".", stringify!($field)),
                        kind: $kind,
                        unit: $unit,
                        paper: $paper,
                        meaning: concat!($($meaning),+),
                    },
                )+],
            };
        }
    };
}

pub(super) use section;
