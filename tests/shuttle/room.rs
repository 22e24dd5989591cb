//! Connections to a server that has room for few, which go round among more threads than there are of them.

use std::sync::Arc;

use shuttle::thread;

use super::call_error::CallError;
use super::room::{InUse, Room, Turn};
use crate::ground::sync::{self, Mutex};
use crate::{explore, finds};

/// What a pool does with them.
struct Pool {
    room: Arc<Room>,
    idle: Mutex<Vec<Connection>>,
    /// For so many more has the server room.
    left: Mutex<u32>,
}

#[derive(Default)]
struct Connection {
    in_use: Option<InUse>,
}

impl Pool {
    fn with_room_for(left: u32) -> Arc<Pool> {
        Arc::new(Pool {
            room: Arc::default(),
            idle: Mutex::default(),
            left: Mutex::new(left),
        })
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let mut connection = idle.pop()?;
        connection.in_use = Some(self.room.enter());
        Some(connection)
    }

    fn make(&self) -> Result<Connection, CallError> {
        let in_use = self.room.enter();
        thread::yield_now();
        let has_room = {
            let mut left = self.left.lock();
            let has_room = *left > 0;
            *left -= u32::from(has_room);
            has_room
        };
        thread::yield_now();
        if has_room {
            return Ok(Connection {
                in_use: Some(in_use),
            });
        }
        in_use.leave_without();
        Err(CallError)
    }

    fn connect(&self, is_patient: bool, is_first: bool) -> Result<Connection, CallError> {
        let (closed, lack) = self.room.look();
        let (mut lack, tried) = match lack {
            Some(lack) => (lack, None),
            None => match self.take().map_or_else(|| self.make(), Ok) {
                Ok(connection) => return Ok(connection),
                Err(lack) => (lack, Some(closed)),
            },
        };
        let until = match is_patient {
            true => sync::far(0),
            false => sync::near(),
        };
        let mut place = self.room.join(is_first, &lack, tried);
        // A look now and then would hide a wake-up that is lost.
        while let Some(turn) = place.turn(sync::far(1), until) {
            match turn {
                Turn::Take => {
                    if let Some(connection) = self.take() {
                        return Ok(connection);
                    }
                }
                Turn::Try { .. } => {
                    match self.make() {
                        Ok(connection) => return Ok(connection),
                        Err(fault) => lack = fault,
                    }
                    place.go_back(&lack);
                }
            }
        }
        Err(lack)
    }

    fn give_back(&self, mut connection: Connection) {
        let mut idle = self.idle.lock();
        let in_use = connection.in_use.take();
        idle.push(connection);
        if let Some(in_use) = in_use {
            in_use.give_back();
        }
    }

    /// The socket goes first.
    fn close(&self, connection: Connection) {
        *self.left.lock() += 1;
        thread::yield_now();
        drop(connection);
    }
}

/// All who have time get one, whether it comes back or is closed; and the impatient take no wake-up with them.
fn go_round(patience: &[bool], room_for: u32) {
    let pool = Pool::with_room_for(room_for);
    let threads: Vec<_> = patience
        .iter()
        .copied()
        .enumerate()
        .map(|(number, is_patient)| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                for round in 0..2 {
                    match pool.connect(is_patient, number == 0) {
                        Ok(connection) if (number + round) % 2 == 0 => pool.give_back(connection),
                        Ok(connection) => pool.close(connection),
                        Err(_) => assert!(!is_patient, "there was a connection, or room for one"),
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(pool.room.look().1.is_none(), "nobody stands in line");
    let all = pool.idle.lock().len() + *pool.left.lock() as usize;
    assert_eq!(all, room_for as usize, "and nothing is lost");
}

fn room_for_one() {
    go_round(&[true, true, true], 1);
}

fn room_for_two() {
    go_round(&[true, true, true, false, false], 2);
}

#[test]
fn all_who_have_time_get_a_connection() {
    explore(room_for_one);
    finds("a connection that comes back wakes nobody", room_for_one);
    finds(
        "one that goes back into the line wakes nobody",
        room_for_one,
    );
    explore(room_for_two);
    finds("one that leaves the line wakes nobody", room_for_two);
}
