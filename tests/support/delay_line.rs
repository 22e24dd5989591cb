//! A network path with a long way and a wide band.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The URL of a connection to `target` that delays all bytes by `way` in each direction, however many they are.
pub fn delayed_url(target: SocketAddr, way: Duration) -> String {
    let carry = move |mut from: TcpStream, mut to: TcpStream| {
        let (sender, arrived) = mpsc::channel::<(Instant, Vec<u8>)>();
        thread::spawn(move || {
            for (at, bytes) in arrived {
                thread::sleep((at + way).saturating_duration_since(Instant::now()));
                if to.write_all(&bytes).is_err() {
                    return;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
        });
        thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if sender
                    .send((Instant::now(), bytes[..count].to_vec()))
                    .is_err()
                {
                    return;
                }
            }
        });
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok((client, server)) = client.and_then(|it| Ok((it, TcpStream::connect(target)?)))
            else {
                return;
            };
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            carry(client.try_clone().unwrap(), server.try_clone().unwrap());
            carry(server, client);
        }
    });
    url
}
