//! A connection that reads answers as they are, errors included.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use redis::{Parser, Value};

pub(super) struct Wire {
    reader: BufReader<TcpStream>,
    parser: Parser,
}

impl Wire {
    pub(super) fn to(addr: SocketAddr) -> Wire {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(crate::support::ms(10_000)))
            .unwrap();
        Wire {
            reader: BufReader::new(stream),
            parser: Parser::new(),
        }
    }

    /// Sends several requests at once, and reads their answers.
    pub(super) fn ask(&mut self, requests: &[Vec<Vec<u8>>]) -> Vec<Value> {
        let packed: Vec<u8> = requests.iter().flat_map(|it| pack(it)).collect();
        self.reader.get_mut().write_all(&packed).unwrap();
        requests.iter().map(|_| self.next()).collect()
    }

    /// Sends one request of these words, and reads its answer.
    pub(super) fn say(&mut self, words: &[&str]) -> Value {
        self.ask(&[request(words)]).remove(0)
    }

    pub(super) fn next(&mut self) -> Value {
        self.parser.parse_value(&mut self.reader).unwrap()
    }
}

pub(super) fn request(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn pack(request: &[Vec<u8>]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for argument in request {
        command.arg(argument);
    }
    command.get_packed_command()
}
