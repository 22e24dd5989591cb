//! The commands for lists.

use super::{Answer, Does, Redis, Refused, WRONG_TYPE};
use crate::keyspace::{Entry, Value};

impl Redis<'_> {
    /// LINDEX: the item at this place, from the end on if it is below 0.
    pub fn lindex(&self, key: &[u8], place: i64) -> Answer<Option<Vec<u8>>> {
        self.may_reach("lindex", Does::Read, key)?;
        let items = self.items(key)?;
        Ok(at(items.len(), place).and_then(|at| items.get(at).cloned()))
    }

    /// LLEN.
    pub fn llen(&self, key: &[u8]) -> Answer<i64> {
        self.may_reach("llen", Does::Read, key)?;
        Ok(self.items(key)?.len() as i64)
    }

    /// LRANGE from a place to another one, from the end on if that is below 0.
    pub fn lrange(&self, key: &[u8], from: usize, to: i64) -> Answer<Vec<Vec<u8>>> {
        self.may_reach("lrange", Does::Read, key)?;
        let items = self.items(key)?;
        let Some(last) = at(items.len(), to) else {
            return Ok(Vec::new());
        };
        Ok(items.iter().take(last + 1).skip(from).cloned().collect())
    }

    /// LPOP. Returns the item that was the first.
    pub fn lpop(&mut self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.may_change("lpop", Does::Write, key)?;
        let mut items = self.items(key)?.to_vec();
        if items.is_empty() {
            return Ok(None);
        }
        let first = items.remove(0);
        self.put_items(key, items);
        Ok(Some(first))
    }

    /// LPUSH of one item.
    pub fn lpush(&mut self, key: &[u8], item: &[u8]) -> Answer<()> {
        self.may_change("lpush", Does::Grow, key)?;
        let mut items = self.items(key)?.to_vec();
        items.insert(0, item.to_vec());
        self.put_items(key, items);
        Ok(())
    }

    /// RPUSH of one item.
    pub fn rpush(&mut self, key: &[u8], item: &[u8]) -> Answer<()> {
        self.may_change("rpush", Does::Grow, key)?;
        let mut items = self.items(key)?.to_vec();
        items.push(item.to_vec());
        self.put_items(key, items);
        Ok(())
    }

    /// LREM of all that are like this one.
    pub fn lrem(&mut self, key: &[u8], item: &[u8]) -> Answer<()> {
        self.may_change("lrem", Does::Write, key)?;
        let mut items = self.items(key)?.to_vec();
        let before = items.len();
        items.retain(|it| it != item);
        if items.len() < before {
            self.put_items(key, items);
        }
        Ok(())
    }

    fn items(&self, key: &[u8]) -> Answer<&[Vec<u8>]> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(&[]),
            Some(Value::List(items)) => Ok(items),
            Some(_) => Err(Refused::new(WRONG_TYPE)),
        }
    }

    fn put_items(&mut self, key: &[u8], items: Vec<Vec<u8>>) {
        let expires = self.entry(key).and_then(|entry| entry.expires);
        let is_empty = items.is_empty();
        let value = Value::List(items);
        self.put(key, (!is_empty).then_some(Entry { value, expires }));
    }
}

/// The place from the beginning on, of so many items.
fn at(length: usize, place: i64) -> Option<usize> {
    let from_end = if place < 0 { length as i64 } else { 0 };
    usize::try_from(place + from_end).ok()
}
