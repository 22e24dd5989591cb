//! EVAL, EVALSHA and SCRIPT.

use super::Server;
use crate::commands::{Answer, Refused};
use crate::number::integer;
use crate::reply::Reply;
use crate::script::Script;

impl Server {
    pub(super) fn eval(
        &mut self,
        now: i64,
        connection: u64,
        args: &[&[u8]],
        only_reads: bool,
    ) -> Reply {
        let script = Script::new(args[0]);
        if let Err(refusal) = self.engine.compile(&script) {
            return refusal;
        }
        self.scripts
            .insert(script.hash().to_owned(), script.clone());
        self.run_script(now, connection, &script, args, only_reads)
    }

    pub(super) fn evalsha(
        &mut self,
        now: i64,
        connection: u64,
        args: &[&[u8]],
        only_reads: bool,
    ) -> Reply {
        let hash = String::from_utf8_lossy(args[0]).to_ascii_lowercase();
        match self.scripts.get(&hash).cloned() {
            Some(script) => self.run_script(now, connection, &script, args, only_reads),
            None => Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned()),
        }
    }

    pub(super) fn script(&mut self, args: &[&[u8]]) -> Reply {
        match (args[0].to_ascii_uppercase().as_slice(), &args[1..]) {
            (b"LOAD", [text]) => {
                let script = Script::new(text);
                if let Err(refusal) = self.engine.compile(&script) {
                    return refusal;
                }
                let hash = script.hash().to_owned();
                self.scripts.insert(hash.clone(), script);
                hash.into_bytes().into()
            }
            (b"EXISTS", hashes) if !hashes.is_empty() => {
                let known = hashes.iter().map(|hash| {
                    let hash = String::from_utf8_lossy(hash).to_ascii_lowercase();
                    self.scripts.contains_key(&hash).into()
                });
                Reply::Array(known.collect())
            }
            (b"FLUSH", [] | [_]) => {
                self.scripts.clear();
                Reply::OK
            }
            (b"KILL", []) => Reply::Error("NOTBUSY No scripts in execution right now.".to_owned()),
            _ => Reply::Error(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try SCRIPT HELP.",
                String::from_utf8_lossy(args[0])
            )),
        }
    }

    fn run_script(
        &mut self,
        now: i64,
        connection: u64,
        script: &Script,
        args: &[&[u8]],
        only_reads: bool,
    ) -> Reply {
        let (keys, args) = match keys_and_args(args) {
            Ok(parts) => parts,
            Err(refused) => return refused.into(),
        };
        let engine = self.engine.clone();
        let database = self.database_of(connection);
        self.execute(database, now, |execution| {
            if only_reads {
                execution
                    .refuse_writes("ERR Write commands are not allowed from read-only scripts.");
            }
            engine.run(script, keys, args, execution)
        })
    }
}

type Words<'a> = &'a [&'a [u8]];

fn keys_and_args<'a>(args: &'a [&'a [u8]]) -> Answer<(Words<'a>, Words<'a>)> {
    match usize::try_from(integer(args[1])?) {
        Ok(count) if count <= args.len() - 2 => Ok(args[2..].split_at(count)),
        Ok(_) => Err(Refused::new(
            "ERR Number of keys can't be greater than number of args",
        )),
        Err(_) => Err(Refused::new("ERR Number of keys can't be negative")),
    }
}
