//! Says that the library is compiled for the simulation.

#![allow(clippy::print_stdout, reason = "this is how cargo is told")]

fn main() {
    println!("cargo::rustc-cfg=redlatch_sim");
    // What the library can be built with beside what the simulation needs.
    println!(
        "cargo::rustc-check-cfg=cfg(feature, values(\"mysql\", \"tls\", \"tracing\", \"test-util\", \"in-memory\"))"
    );
    println!("cargo::rerun-if-changed=build.rs");
}
