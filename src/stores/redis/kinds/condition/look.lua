-- Takes a place among those who wait on a condition, asks whether it was signalled, or gives it up.
--
-- KEYS[1]  the lock
-- KEYS[2]  those who wait, in the order in which they came, by µs since 1970
-- KEYS[3]  when those who wait, and those who were signalled and have not asked since, have to be heard of, ms since 1970
-- ARGV[1]  the visitor whose place it is
-- ARGV[2]  the operation: 'enlist' takes a place, 'look' asks, 'leave' gives it up unless it was signalled; 'drop' gives it up
--          with its signal, which somebody else gets, and 'pass' does so if its thread may have been told of the signal
-- ARGV[3]  the visitor whose hold has to stand to take a place
-- ARGV[4]  the lease of a place, ms: whoever is silent for longer is dead
-- ARGV[5]  the channels of those who wait, without `:visitor` behind them
-- ARGV[6]  the server time after which the request is refused if it is to take a place or to ask, ms since 1970
-- ARGV[7]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {0, now}          it waits
--         {1, now}          it waits no more: it was signalled, or its place was given up
--         {2, now, holder}  the hold is gone; holder is whoever has the lock, '' for nobody and for one that is not told
--         {3, now}          too late, nothing was done
--         {4, now}          the place was there, and is given up
--         {5, now}          dropped or passed on
--
-- Keeps: a signal is not lost with the one that got it. No key lacks a time to live. A full server takes no new place, and
-- does all else.

-- include holder_of.lua
-- include places.lua

-- include clock.lua
local waiting, due, visitor, op, life, channels = KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[4] + 0, ARGV[5]
if now > ARGV[6] + 0 and (op == 'enlist' or op == 'look') then
    return {number, {3, now}}
end

-- include gone.lua

-- Has the place last for a while from now on. Returns the error of a command that was refused.
local function keep()
    -- First, for behind what needs no memory a full server takes the other.
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
        -- Behind all others, also if the server's clock was set back meanwhile.
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
    -- What the dead were told, the next one is told.
    local late = call('ZRANGEBYSCORE', due, '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)
    for _, other in ipairs(late) do
        -- Some of them may have been taken away as the dead before one that was woken: they had no signal.
        if other ~= visitor and call('ZREM', due, other) == 1 and call('ZREM', waiting, other) == 0 then
            wake_first(waiting, due, channels, now)
        end
    end
    -- An end farther ahead than a place lasts is of before the server's clock was set back: one that was told may be dead.
    local ahead = call('ZRANGEBYSCORE', due, '(' .. string.format('%.0f', now + life), '+inf', 'LIMIT', 0, 1000)
    for _, other in ipairs(ahead) do
        -- Not one that wake_first has taken out of both sets meanwhile: it had no signal.
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
