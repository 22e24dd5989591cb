-- The queue of a fair lock is a list of waiters, in the order of joining. In a sorted set, the score of a waiter is the
-- time, ms, from which on it counts as dead. A request of this library's waiter sets this time to now plus n times the
-- patience (see fair/acquire.lua). n is 1 for the first waiter, 2 for the second, else the length of the queue. A
-- Redisson client that acquires the lock subtracts its patience from all scores. The fraction of a score encodes the
-- time of the last request (see looks.lua), or when a Redisson waiter was first found without a subscription.

-- include looks.lua

-- A visitor of this library ends with `:thread:hold`, and a visitor of Redisson with `:thread`.
local function is_ours(waiter)
    return string.find(waiter, ':%d+:%d+$') ~= nil
end

-- Returns the first living waiter; false if there is none. Removes dead waiters before it. The waiter `me` is never dead.
-- Another waiter is dead if its time has passed or is missing, or if `left_of` (optional) returns at most 0 for it.
-- `left_of` gets a waiter, its time, and whether a dead waiter preceded it. Unless the first living waiter is `me`, the
-- second result is how much longer it counts as alive, ms. If `call` is `pcall`, the first result may be an error.
local function first_of(call, queue, times, me, now, left_of)
    local first, has_dead = call('LINDEX', queue, 0), false
    while first and first ~= me and type(first) == 'string' do
        local ends = call('ZSCORE', times, first)
        local left = type(ends) == 'string' and ends - now or 0
        if left > 0 and left_of then
            left = left_of(first, ends, has_dead)
        end
        if left > 0 then
            return first, left
        end
        local gone = call('LPOP', queue)
        if type(gone) ~= 'string' then
            return gone
        end
        call('ZREM', times, first)
        first, has_dead = call('LINDEX', queue, 0), true
    end
    if not first and call('EXISTS', times) == 1 then
        call('DEL', times)
    end
    return first
end

-- Notifies the first waiter that the lock is free. If this waiter is not subscribed, notifies another waiter of this
-- library: the first subscribed one of the next 31. Its attempt detects a dead first waiter. May return an error.
local function tell_first(queue, times, base, now)
    local first = first_of(redis.pcall, queue, times, nil, now)
    if type(first) ~= 'string' then
        return first
    end
    local heard = redis.pcall('PUBLISH', base .. ':' .. first, '0')
    for _, waiter in ipairs(heard == 0 and redis.pcall('LRANGE', queue, 1, 31) or {}) do
        if heard == 0 and is_ours(waiter) then
            heard = redis.pcall('PUBLISH', base .. ':' .. waiter, '0')
        end
    end
    return heard
end
