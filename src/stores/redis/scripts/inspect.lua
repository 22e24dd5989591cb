-- Tells who holds a lock.
--
-- KEYS[1]  the lock
-- ARGV[1]  a visitor, or ''
--
-- Returns {exists, count, ttl}: count is that of the visitor, '' if it holds nothing; ttl in ms, -1 for ever, -2 for none
return {
    redis.call('EXISTS', KEYS[1]),
    redis.call('HGET', KEYS[1], ARGV[1]) or '',
    redis.call('PTTL', KEYS[1]),
}
