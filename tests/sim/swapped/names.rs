//! The world's network resolves host names.
