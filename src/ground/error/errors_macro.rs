//! The macro that defines an error: the fields, the name, the lock and server concerned, and the text.

macro_rules! errors {
    (
        $(#[$enum_meta:meta])*
        $enum:ident $(also #[cfg($cfg:meta)] $other:ident($of:ty): $doc:literal)? {
        $(
            $(#[$meta:meta])*
            $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }
            $kind:literal $place:expr, $text:literal $(, $arg:expr)*;
        )*
        }
    ) => {
        $(#[$enum_meta])*
        #[non_exhaustive]
        pub enum $enum {
            $($(#[$meta])* #[non_exhaustive] $name { $($(#[$field_meta])* $field: $type,)* },)*
            $(#[doc = $doc] #[cfg($cfg)] $other($of),)?
        }

        #[allow(unused_variables, reason = "of the fields each arm uses those that it needs")]
        impl $enum {
            pub(super) fn name(&self) -> &'static str {
                match self {
                    $($enum::$name { .. } => $kind,)*
                    $(#[cfg($cfg)] $enum::$other(error) => error.name(),)?
                }
            }

            pub(super) fn place(&self) -> (Option<&str>, Option<&str>) {
                match self {
                    $($enum::$name { $($field),* } => $place,)*
                    $(#[cfg($cfg)] $enum::$other(error) => error.place(),)?
                }
            }
        }

        #[allow(unused_variables, reason = "of the fields each arm uses those that it needs")]
        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $($enum::$name { $($field),* } => write!(f, $text $(, $arg)*),)*
                    $(#[cfg($cfg)] $enum::$other(error) => error.fmt(f),)?
                }
            }
        }
    };
}
pub(super) use errors;
