-- The queue of a fair lock is a list, in the order of joining. The score of a waiter in a sorted set is the time, ms, from
-- which on the waiter counts as dead. For a waiter of this library, this is the time of its last request plus one patience
-- per position in the queue, because each holder of Redisson subtracts one patience from all times. The fraction of the
-- score encodes the time of the waiter's last request (see looks.lua). For a waiter of Redisson, it encodes the time when
-- its channel was first found without a subscriber. Each waiter subscribes to a channel of its own.

-- include looks.lua

-- Whether a waiter belongs to this library. Only visitors of this library end with the number of a hold.
local function is_ours(waiter)
    return string.find(waiter, ':%d+:%d+$') ~= nil
end

-- The first living waiter; false if there is none. Dead waiters before it, other than `me`, are removed: waiters whose time
-- has passed or is missing, and waiters for which `left_of`, if given, returns 0 or less. The arguments of `left_of` are a
-- waiter, its time, and whether a dead waiter preceded it. The second result is what `left_of` returned for the first living
-- waiter. If `call` is `pcall`, the first result may be an error.
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

-- Notifies the first waiter that the lock is free. If it is not subscribed, the first subscribed waiter of this library
-- is notified, which then queries the lock. Returns an error, if there is one.
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
