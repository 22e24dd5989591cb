//! Token locks on a server without scripts. Commands replace each script. Their replies are converted to the script's
//! format.
//!
//! The server cannot refuse a late command. So a late command can acquire a free lock for one lease, with a token that
//! no client uses any more. Each request ends with an `ECHO` of its number, which identifies the replies.

use redis::Value;

use crate::stores::redis::calls::Call;
use crate::stores::redis::packed::Packed;
use crate::stores::redis::replies::text_of;
use crate::stores::redis::transport::{CallError, time_of};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Instead {
    Acquire = 1,
    Release,
    Renew,
    Transfer,
    Withdraw,
    ForceRelease,
    Inspect,
}

/// The command that deletes a key only if it has a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Valkey 9.0 and later.
    DelIfEq = 1,
    /// Redis 8.4 and later.
    DelEx = 2,
}

const COUNT: usize = 2;

/// The size in bits of the counter in a request's number. The higher bits encode the commands of the request.
const NUMBER_BITS: u32 = 32;

impl Dialect {
    pub(crate) const ALL: [Dialect; 2] = [Dialect::DelIfEq, Dialect::DelEx];

    pub(crate) fn of(code: u8) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|it| *it as u8 == code)
    }

    pub(crate) fn freeing<'a>(self, key: &'a str, token: &'a str) -> Vec<&'a str> {
        match self {
            Dialect::DelIfEq => vec!["DELIFEQ", key, token],
            Dialect::DelEx => vec!["DELEX", key, "IFEQ", token],
        }
    }
}

pub(crate) fn numbered(number: i64, dialect: Dialect, step: Instead) -> i64 {
    number | (dialect as i64 | (step as i64) << 2) << NUMBER_BITS
}

fn asked(number: i64) -> Option<(Dialect, Instead)> {
    use Instead::*;
    const STEPS: [Instead; 7] = [
        Acquire,
        Release,
        Renew,
        Transfer,
        Withdraw,
        ForceRelease,
        Inspect,
    ];
    let (code, wanted) = (number >> NUMBER_BITS & 3, number >> (NUMBER_BITS + 2));
    let dialect = u8::try_from(code).ok().and_then(Dialect::of)?;
    let step = STEPS.into_iter().find(|step| *step as i64 == wanted)?;
    Some((dialect, step))
}

/// Returns `false` if `number` stands for a request that is sent as a script.
pub(crate) fn pack(call: &Call<'_>, number: i64, into: &mut Vec<u8>) -> bool {
    let Some((dialect, step)) = asked(number) else {
        return false;
    };
    let [visitor, successor] = call.tokens();
    let (key, lease) = (&**call.lock, call.lease.as_millis().to_string());
    let given = |token| vec!["SET", key, token, "GET", "PX", &lease, "IFEQ", visitor];
    let (freeing, left) = (dialect.freeing(key, visitor), vec!["PTTL", key]);
    let commands = match step {
        Instead::Acquire => vec![vec!["SET", key, visitor, "GET", "PX", &lease, "NX"], left],
        Instead::Release => vec![freeing, vec!["GET", key]],
        Instead::Renew => vec![given(visitor), left],
        Instead::Transfer => vec![given(successor), left],
        Instead::Withdraw => vec![freeing, vec!["TIME"]],
        Instead::ForceRelease => vec![vec!["GETDEL", key], left],
        Instead::Inspect => vec![vec!["GET", key], left],
    };
    let echo = [&number.to_string(), " ", visitor, " ", successor].concat();
    for words in commands.iter().chain([&vec!["ECHO", &echo]]) {
        let mut packed = Packed::begin(into, words.len());
        words.iter().for_each(|word| packed.text(&[word]));
    }
    true
}

/// The replies received so far to one request that was sent as commands.
#[derive(Default)]
pub(crate) struct Answers(Vec<Result<Value, String>>);

impl Answers {
    pub(crate) fn are_of(number: i64) -> bool {
        asked(number).is_some()
    }

    /// After the last reply, returns the reply that the replaced script would give. The `bool` is true if the server
    /// refused the echo, or if replies to other requests precede the replies to this request.
    pub(crate) fn add(
        &mut self,
        number: i64,
        answer: Result<Value, String>,
    ) -> Option<(Result<Value, CallError>, bool)> {
        let (_, step) = asked(number)?;
        let said = answer.as_ref().map(text_of).unwrap_or_default();
        let mut words = said.split(' ');
        let is_echo = words.next() == Some(&*number.to_string());
        if !is_echo && (answer.is_ok() || self.0.len() < COUNT) {
            self.0.push(answer);
            return None;
        }
        let tokens = [words.next(), words.next()].map(Option::unwrap_or_default);
        let mut answers = std::mem::take(&mut self.0);
        let rest = answers.split_off(answers.len().saturating_sub(COUNT));
        let mut rest = rest.into_iter();
        let mut next = || rest.next().unwrap_or(Ok(Value::Nil));
        let read = match (next(), next()) {
            // Without the echo, it is not known which request these replies belong to.
            (Ok(_), _) if !is_echo => Err(CallError::NoReply {
                reason: "the number of the request was refused".into(),
                timed_out: false,
            }),
            (first, second) => read(step, tokens, first, second).map_err(CallError::Server),
        };
        Some((read, !is_echo || !answers.is_empty()))
    }
}

fn read(
    step: Instead,
    [visitor, successor]: [&str; 2],
    first: Result<Value, String>,
    second: Result<Value, String>,
) -> Result<Value, String> {
    use Value::{Int, Nil};
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let told = |answer: Value| (answer != Nil).then(|| text_of(&answer));
    let found = match (step, first) {
        // The scripts report a key of another type as the holder.
        (Instead::Release | Instead::Renew | Instead::Transfer, Err(error))
            if error.starts_with("WRONGTYPE") =>
        {
            Some("a key of another type".to_owned())
        }
        (_, first) => told(first?),
    };
    let (is_own, is_there) = (found.as_deref() == Some(visitor), found.is_some());
    let found = found.unwrap_or_default();
    let left = match &second {
        Ok(Int(left)) => *left,
        _ => -1,
    };
    Ok(Value::Array(match step {
        // Unlike the scripts, the commands return no server time. So the time until the request expires is unknown: -1.
        Instead::Acquire if is_own || !is_there => return Ok(Int(-1)),
        Instead::Acquire => vec![Int(0), Int(0), Int(left), text(&found)],
        Instead::Release if found == "1" => return Ok(Int(0)),
        Instead::Release if found == "0" => {
            vec![Int(0), text(&told(second?).unwrap_or_default())]
        }
        Instead::Release => vec![Int(0), text(&found)],
        Instead::Renew if is_own => vec![Nil, Int(1)],
        Instead::Renew if is_there => vec![Nil, Int(1), Int(1), text(&found)],
        Instead::Renew => vec![Nil, Int(1), Int(1), Int(0)],
        Instead::Transfer if is_own || is_there && found == successor => {
            vec![Int(1), Int(0), Int(0)]
        }
        Instead::Transfer => vec![Int(2), Int(0), text(&found)],
        Instead::Withdraw => {
            return Ok(Int(time_of(&second?).ok_or("TIME was not answered")?));
        }
        Instead::ForceRelease => vec![Int(is_there.into()), Int(0)],
        Instead::Inspect => {
            let count = if is_own { "1" } else { "" };
            vec![Int(is_there.into()), text(count), Int(left)]
        }
    }))
}

#[cfg(test)]
mod tests;
