//! The commands for sorted sets.

use super::{Answer, Does, Redis, Refused, WRONG_TYPE};
use crate::keyspace::{Entry, Value};

/// The members of a sorted set, each with its score.
type Members = Vec<(Vec<u8>, i64)>;

impl Redis<'_> {
    /// ZSCORE.
    pub fn zscore(&self, key: &[u8], member: &[u8]) -> Answer<Option<i64>> {
        self.may_reach("zscore", Does::Read, key)?;
        let members = self.members(key)?;
        let mut found = members.iter().filter(|(name, _)| name == member);
        Ok(found.next().map(|(_, score)| *score))
    }

    /// The score of the first one: ZRANGE key 0 0 WITHSCORES.
    pub fn zfirst(&self, key: &[u8]) -> Answer<Option<i64>> {
        self.may_reach("zrange", Does::Read, key)?;
        Ok(self.members(key)?.first().map(|(_, score)| *score))
    }

    /// The first one: ZRANGE key 0 0.
    pub fn zfirst_member(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.may_reach("zrange", Does::Read, key)?;
        Ok(self.members(key)?.first().map(|(name, _)| name.clone()))
    }

    /// ZRANGEBYSCORE key -inf most LIMIT 0 count.
    pub fn zrangebyscore(&self, key: &[u8], most: i64, count: usize) -> Answer<Vec<Vec<u8>>> {
        self.may_reach("zrangebyscore", Does::Read, key)?;
        let members = self.members(key)?.into_iter();
        let members = members.take_while(|(_, score)| *score <= most);
        Ok(members.take(count).map(|(name, _)| name).collect())
    }

    /// ZRANGEBYSCORE of the scores above `least`, with LIMIT 0 `count`.
    pub fn zrangebyscore_above(
        &self,
        key: &[u8],
        least: i64,
        count: usize,
    ) -> Answer<Vec<Vec<u8>>> {
        self.may_reach("zrangebyscore", Does::Read, key)?;
        let members = self.members(key)?.into_iter();
        let members = members.filter(|(_, score)| *score > least);
        Ok(members.take(count).map(|(name, _)| name).collect())
    }

    /// ZRANGE key -1 -1 WITHSCORES: the largest score.
    pub fn zlast_score(&self, key: &[u8]) -> Answer<Option<i64>> {
        self.may_reach("zrange", Does::Read, key)?;
        let last = self.members(key)?.into_iter().last();
        Ok(last.map(|(_, score)| score))
    }

    /// ZRANGE key 0 -1: all members by their scores.
    pub fn zmembers(&self, key: &[u8]) -> Answer<Vec<Vec<u8>>> {
        self.may_reach("zrange", Does::Read, key)?;
        Ok(self
            .members(key)?
            .into_iter()
            .map(|(name, _)| name)
            .collect())
    }

    /// The same with their scores: ZRANGE key 0 -1 WITHSCORES.
    pub fn zscored(&self, key: &[u8]) -> Answer<Vec<(Vec<u8>, i64)>> {
        self.may_reach("zrange", Does::Read, key)?;
        self.members(key)
    }

    /// ZCARD.
    pub fn zcard(&self, key: &[u8]) -> Answer<i64> {
        self.may_reach("zcard", Does::Read, key)?;
        Ok(self.members(key)?.len() as i64)
    }

    /// ZINCRBY; a member that is missing counts as 0.
    pub fn zincrby(&mut self, key: &[u8], by: i64, member: &[u8]) -> Answer<()> {
        self.may_change("zincrby", Does::Grow, key)?;
        let mut members = self.members(key)?;
        match members.iter_mut().find(|(name, _)| name == member) {
            Some((_, score)) => *score += by,
            None => members.push((member.to_vec(), by)),
        }
        self.put_members(key, members);
        Ok(())
    }

    /// ZADD of one member.
    pub fn zadd(&mut self, key: &[u8], score: i64, member: &[u8]) -> Answer<()> {
        self.may_change("zadd", Does::Grow, key)?;
        let mut members = self.members(key)?;
        members.retain(|(name, _)| name != member);
        members.push((member.to_vec(), score));
        self.put_members(key, members);
        Ok(())
    }

    /// ZADD of members that have one score.
    pub fn zadd_all(&mut self, key: &[u8], score: i64, added: &[Vec<u8>]) -> Answer<()> {
        added.iter().try_for_each(|it| self.zadd(key, score, it))
    }

    /// ZCOUNT of those above `least`, up to `most`.
    pub fn zcount(&self, key: &[u8], least: i64, most: i64) -> Answer<i64> {
        self.may_reach("zcount", Does::Read, key)?;
        let members = self.members(key)?;
        let found = members
            .iter()
            .filter(|(_, score)| (least.saturating_add(1)..=most).contains(score));
        Ok(found.count() as i64)
    }

    /// ZREM. Returns how many were there.
    pub fn zrem(&mut self, key: &[u8], gone: &[Vec<u8>]) -> Answer<usize> {
        self.may_change("zrem", Does::Write, key)?;
        let mut members = self.members(key)?;
        let before = members.len();
        members.retain(|(name, _)| !gone.contains(name));
        let removed = before - members.len();
        if removed > 0 {
            self.put_members(key, members);
        }
        Ok(removed)
    }

    fn members(&self, key: &[u8]) -> Answer<Members> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(Vec::new()),
            Some(Value::Sorted(members)) => Ok(members.clone()),
            Some(_) => Err(Refused::new(WRONG_TYPE)),
        }
    }

    fn put_members(&mut self, key: &[u8], mut members: Members) {
        let expires = self.entry(key).and_then(|entry| entry.expires);
        members.sort_by(|(name, score), (other, than)| (score, name).cmp(&(than, other)));
        let is_empty = members.is_empty();
        let value = Value::Sorted(members);
        self.put(key, (!is_empty).then_some(Entry { value, expires }));
    }
}
