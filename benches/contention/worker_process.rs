//! One process of redlatch or of the bare client: its threads acquire the same lock.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Lock};

use crate::Contender;
use crate::harness::bare::Bare;
use crate::harness::{cpu_time, now, orders, say};
use crate::protocol::{Acquisition, Load, Notes, OUT_OF_THE_WAY, Order, notes, write};

/// One thread's client of the lock.
pub(crate) trait Member: Send {
    fn enter(&mut self);
    fn leave(&mut self);
}

impl Member for Lock {
    fn enter(&mut self) {
        self.lock().expect("the lock comes");
    }

    fn leave(&mut self) {
        self.unlock().expect("the lock is held");
    }
}

impl Member for Bare {
    fn enter(&mut self) {
        while !self.try_lock() {}
    }

    fn leave(&mut self) {
        self.unlock();
    }
}

/// Executes commands. Arguments: contender, server, name, number of threads.
pub(crate) fn run(args: &[String]) {
    let [who, url, name, threads] = args else {
        panic!("four arguments")
    };
    serve(members(who, url, name, threads.parse().expect("a number")));
}

/// The clients of this many threads for one lock.
pub(crate) fn members(who: &str, url: &str, name: &str, count: usize) -> Vec<Box<dyn Member>> {
    if who == Contender::Redlatch.name() {
        let client = Client::open(url).expect("a client");
        let lock = || -> Box<dyn Member> { Box::new(client.lock(name)) };
        return (0..count).map(|_| lock()).collect();
    }
    // Visitors are unique across all processes.
    let first = std::process::id() as usize * 1000;
    let bare = |thread| -> Box<dyn Member> { Box::new(Bare::new(url, name, first + thread)) };
    (0..count).map(bare).collect()
}

fn serve(mut members: Vec<Box<dyn Member>>) {
    say(&[]);
    for order in orders() {
        match Order::parse(&order) {
            Order::Load(rush) => {
                let before = cpu_time();
                let threads = all_rush(&mut members, &rush);
                let used = cpu_time() - before;
                write(&rush.file, &threads);
                say(&[used, 0]);
            }
            Order::Hold(hold) => {
                let member = &mut members[0];
                member.enter();
                say(&[]);
                thread::sleep(hold);
                let unlocked = now();
                member.leave();
                thread::sleep(OUT_OF_THE_WAY);
                say(&[unlocked]);
            }
            Order::Wait => {
                let member = &mut members[0];
                let asked = now();
                member.enter();
                let had = now();
                member.leave();
                say(&[asked, had]);
            }
        }
    }
}

fn all_rush(members: &mut [Box<dyn Member>], order: &Load) -> Vec<Notes> {
    thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter_mut()
            .map(|member| scope.spawn(|| rush(&mut **member, order)))
            .collect();
        let threads = threads.into_iter().map(|thread| thread.join());
        threads.map(|notes| notes.expect("a thread")).collect()
    })
}

fn rush(member: &mut dyn Member, order: &Load) -> Notes {
    let mut notes = notes();
    thread::sleep(Duration::from_nanos(order.start.saturating_sub(now())));
    loop {
        let asked = now();
        if asked >= order.end {
            return notes;
        }
        member.enter();
        let had = now();
        if !order.inside.is_zero() {
            thread::sleep(order.inside);
        }
        let left = now();
        member.leave();
        notes.push(Acquisition { asked, had, left });
    }
}
