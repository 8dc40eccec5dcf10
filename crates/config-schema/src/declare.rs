//! The macros that declare sections, choices and rows.

/// Declares a section: a struct, its defaults and its [`Section`](crate::Section).
///
/// A field is `name: type = default, field;` below its description, where [`integer`](crate::integer) or one of its
/// siblings builds `field`. Tables inside the section follow the fields as `table name: type;`.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)+)])?
                $field:ident: $type:ty = $default:expr, $declaration:expr;
            )*
            $(table $table:ident: $table_type:ty;)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize $($(, $derive)+)?)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)+)])?
                pub $field: $type,
            )*
            $(
                #[doc = concat!("The table `", stringify!($table), "`.")]
                pub $table: $table_type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($table: Default::default(),)* }
            }
        }

        impl $crate::Schema for $name {
            const SECTION: &'static $crate::Section = &$crate::Section {
                about: concat!($($about),+),
                fields: &[$(
                    $crate::Field { name: stringify!($field), about: concat!($($doc),+), ..$declaration },
                )*],
                tables: &[$((stringify!($table), <$table_type as $crate::Schema>::SECTION),)*],
            };
        }
    };
}

/// Declares an enum whose variants are written as words.
#[macro_export]
macro_rules! choice {
    (
        $(#[doc = $about:literal])+
        pub enum $name:ident {
            $($(#[doc = $doc:literal])+ $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(
                $(#[doc = $doc])+
                #[serde(rename = $word)]
                $variant,
            )+
        }

        impl $crate::Choice for $name {
            const WORDS: &'static [(&'static str, &'static str)] = &[$(($word, concat!($($doc),+)),)+];
        }
    };
}

/// Declares the tables of a list. A column with a default, which must be 0, may be left out.
#[macro_export]
macro_rules! row {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident {
            $($(#[doc = $doc:literal])+ $field:ident: usize $(= $default:literal)?, $range:expr;)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                $(#[doc = concat!("Default: ", $default, ".")] #[serde(default)])?
                pub $field: usize,
            )+
        }

        impl $crate::Row for $name {
            const COLUMNS: &'static [$crate::Column] = &[$(
                $crate::Column {
                    name: stringify!($field),
                    range: $range,
                    optional: false $(|| $default == 0)?,
                },
            )+];
        }
    };
}
