//! One process of redlatch or bare: its threads want the same lock.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Lock};

use crate::Contender;
use crate::harness::bare::Bare;
use crate::harness::{cpu_time, now, orders, say};
use crate::protocol::{Notes, OUT_OF_THE_WAY, Order, Rush, Stay, notes, write};

/// One thread's way to the lock.
trait Member: Send {
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

/// Does what it is told. Its arguments: who it is, the server, the name, how many threads.
pub(crate) fn run(args: &[String]) {
    let [who, url, name, threads] = args else {
        panic!("four arguments")
    };
    let threads: usize = threads.parse().expect("a number");
    if who == Contender::Redlatch.name() {
        let client = Client::open(url).expect("a client");
        serve((0..threads).map(|_| client.lock(name)).collect());
    } else {
        // No two threads of all processes have the same visitor.
        let first = std::process::id() as usize * 1000;
        serve(
            (0..threads)
                .map(|thread| Bare::new(url, name, first + thread))
                .collect(),
        );
    }
}

fn serve<M: Member>(mut members: Vec<M>) {
    say(&[]);
    for order in orders() {
        match Order::parse(&order) {
            Order::Rush(rush) => {
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

fn all_rush<M: Member>(members: &mut [M], order: &Rush) -> Vec<Notes> {
    thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter_mut()
            .map(|member| scope.spawn(|| rush(member, order)))
            .collect();
        let threads = threads.into_iter().map(|thread| thread.join());
        threads.map(|notes| notes.expect("a thread")).collect()
    })
}

fn rush<M: Member>(member: &mut M, order: &Rush) -> Notes {
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
        notes.push(Stay { asked, had, left });
    }
}
