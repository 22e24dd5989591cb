//! Tests that compare times, and so run one after the other with nothing beside them.

#[test]
#[ignore = "needs several servers: make topologies"]
fn one_shard_of_three_frozen_is_not_felt_elsewhere() {
    crate::cluster::one_shard_of_three_frozen();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn frozen_sentinels_take_no_time_of_the_one_that_answers() {
    crate::sentinel::two_sentinels_of_three_frozen();
}
