//! Files that replace others in the copy of the library. None is compiled as a module of this folder.

mod host;
mod names;
mod poll;
mod random;
mod socket;
mod sync;
mod thread_holds;
mod time;
