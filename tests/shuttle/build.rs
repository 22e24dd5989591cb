//! Says that files of the library are compiled for shuttle.

#![allow(clippy::print_stdout, reason = "this is how cargo is told")]

fn main() {
    println!("cargo::rustc-cfg=redlatch_shuttle");
    println!("cargo::rerun-if-changed=build.rs");
}
