//! Tests that compare times, and so run one after another and alone.

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_frozen_shard_delays_no_request_to_other_shards() {
    crate::cluster::one_shard_of_three_frozen();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn frozen_sentinels_do_not_delay_the_one_that_answers() {
    crate::sentinel::two_sentinels_of_three_frozen();
}
