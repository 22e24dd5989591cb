//! The network of the world knows the hosts by their names.
