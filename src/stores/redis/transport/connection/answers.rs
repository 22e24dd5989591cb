use std::time::Instant;

use redis::Value;

use super::{Connection, LARGEST_SMALL, SMALL_BITS};
use crate::stores::redis::kinds::Answers;
use crate::stores::redis::transport::call_error::CallError;

impl Connection {
    /// Reads the reply with the request number `number`. Error replies have no number, so any error is treated as the
    /// reply. This is safe, because an error never grants a lock.
    pub(crate) fn answer(&mut self, number: i64, deadline: Instant) -> Result<Value, CallError> {
        if Answers::are_of(number) {
            return self.answer_of_commands(number, deadline);
        }
        loop {
            match self.receive(deadline)? {
                Value::Int(both) if both >> SMALL_BITS == number => {
                    return Ok(Value::Int(both & LARGEST_SMALL));
                }
                Value::Array(parts) => {
                    if let Ok([Value::Int(answered), answer]) = <[Value; 2]>::try_from(parts)
                        && answered == number
                    {
                        return Ok(answer);
                    }
                }
                _ => {}
            }
            self.is_unusable = true;
        }
    }

    fn answer_of_commands(&mut self, number: i64, deadline: Instant) -> Result<Value, CallError> {
        loop {
            let part = match self.receive(deadline) {
                Ok(part) => Ok(part),
                Err(CallError::Server(text)) => Err(text),
                Err(fault) => return Err(fault),
            };
            if let Some((answer, is_strange)) = self.parts.add(number, part) {
                self.is_unusable |= is_strange;
                return answer;
            }
        }
    }
}
