-- Joins the queue of a condition, checks for a signal, or leaves the queue.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue: waiters by the time of joining, µs since 1970
-- KEYS[3]  the deadline of each waiter's next request, ms since 1970; also of waiters that have sent no request since
--          their signal
-- ARGV[1]  the visitor of the queue entry
-- ARGV[2]  the operation: 'enlist' joins, 'look' checks, 'leave' leaves unless signalled; 'drop' leaves, and passes a
--          received signal on to another waiter; 'pass' does so even if it is unknown whether a signal was received
-- ARGV[3]  for 'enlist': the visitor that has to hold the lock
-- ARGV[4]  the lease of a queue entry, ms: a waiter that sends no request for longer is dead
-- ARGV[5]  the channels of the waiters, without the suffix `:visitor`
-- ARGV[6]  the server time after which the request is refused if it joins or checks, ms since 1970
-- ARGV[7]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {0, now}          waiting
--         {1, now}          signalled, or no longer in the queue
--         {2, now, holder}  the hold is gone; holder holds the lock, or is '' if the lock is free or the holder unknown
--         {3, now}          too late, nothing was done
--         {4, now}          left the queue
--         {5, now}          left the queue; a received signal was passed on
--
-- Keeps: if a signalled waiter dies, another waiter gets its signal. Each key has a TTL. At maxmemory only joining fails.

-- include holder_of.lua
-- include places.lua

-- include clock.lua
local waiting, due, visitor, op, life, channels = KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[4] + 0, ARGV[5]
if now > ARGV[6] + 0 and (op == 'enlist' or op == 'look') then
    return {number, {3, now}}
end

-- include gone.lua

local function keep()
    -- PEXPIRE is first because it needs no memory. After such a write, a server at maxmemory accepts ZADD in the same
    -- script.
    local lasts = pcall('PEXPIRE', waiting, 10 * life)
    local heard = pcall('ZADD', due, string.format('%.0f', now + life), visitor)
    local lasts_too = pcall('PEXPIRE', due, 10 * life)
    for _, done in ipairs({heard, lasts, lasts_too}) do
        if type(done) == 'table' then
            return done
        end
    end
end

if op == 'enlist' then
    local has = pcall('HEXISTS', key, ARGV[3])
    if has ~= 1 then
        return gone(has, '')
    end
    if not call('ZSCORE', waiting, visitor) then
        -- Even if the server's clock was set back, the visitor joins behind all other waiters.
        local last = call('ZRANGE', waiting, -1, -1, 'WITHSCORES')[2]
        local came = math.max(time[1] * 1000000 + time[2], last and last + 1 or 0)
        call('ZADD', waiting, string.format('%.0f', came), visitor)
    end
    local refused = keep()
    if refused then
        pcall('ZREM', waiting, visitor)
        pcall('ZREM', due, visitor)
        return refused
    end
    return {number, {0, now}}
end

if op == 'look' then
    -- A dead waiter cannot use its signal, so the next waiter is signalled.
    local late = call('ZRANGEBYSCORE', due, '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)
    for _, other in ipairs(late) do
        -- An earlier call of wake_first may have removed this waiter, because it was dead and had no signal.
        if other ~= visitor and call('ZREM', due, other) == 1 and call('ZREM', waiting, other) == 0 then
            wake_first(waiting, due, channels, now)
        end
    end
    -- A deadline further ahead than one lease shows that the server's clock was set back. The waiter may be dead.
    local ahead = call('ZRANGEBYSCORE', due, '(' .. string.format('%.0f', now + life), '+inf', 'LIMIT', 0, 1000)
    for _, other in ipairs(ahead) do
        -- If wake_first has removed this waiter from both sets, the waiter had no signal.
        if not call('ZSCORE', waiting, other) and other ~= visitor and call('ZREM', due, other) == 1 then
            wake_first(waiting, due, channels, now)
        end
    end
end
local waits = call('ZSCORE', waiting, visitor)
if op == 'look' and waits then
    keep()
    return {number, {0, now}}
end
if waits then
    call('ZREM', waiting, visitor)
end
local was_signalled = call('ZREM', due, visitor) == 1
if op == 'look' or op == 'leave' then
    return {number, {waits and 4 or 1, now}}
end
if not waits and (was_signalled or op == 'pass') then
    wake_first(waiting, due, channels, now)
end
return {number, {5, now}}
