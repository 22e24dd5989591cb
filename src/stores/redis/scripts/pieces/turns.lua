-- The waiters for a read-write lock have entries in a sorted set. The score is the time of joining, ms. Its fraction
-- encodes the time of the last request (see looks.lua). An entry expires about 3 s after the last request. A writer
-- that releases the lock sets the joining time of waiting readers to 0. The entries affect only the order of
-- acquisition, so errors of commands on the entries are ignored.

-- include looks.lua

-- Returns the first waiter that joined before the visitor; false if there is none. For a reader, only writers count. Only
-- the first 32 entries are checked.
local function first_before(notes, visitor, now, reads)
    local noted = redis.pcall('ZRANGE', notes, 0, 31, 'WITHSCORES')
    for i = 1, #noted, 2 do
        local silence = silence_of(noted[i + 1], now)
        if noted[i] == visitor then
            return false
        elseif not silence or silence > 2800 then
            redis.pcall('ZREM', notes, noted[i])
        elseif not reads or is_writer(noted[i]) then
            return noted[i]
        end
    end
    return false
end

local function note_wait(notes, visitor, now)
    local came = redis.pcall('ZSCORE', notes, visitor)
    local noted = redis.pcall('ZADD', notes, time_of(type(came) == 'string' and came or now, now), visitor)
    if type(noted) ~= 'table' and redis.pcall('PEXPIRE', notes, 9000) ~= 1 then
        redis.pcall('DEL', notes)
    end
end

-- Puts waiting readers before all waiting writers.
local function let_readers_in(notes)
    local noted = redis.pcall('ZRANGE', notes, 0, -1, 'WITHSCORES')
    for i = 1, #noted, 2 do
        if not is_writer(noted[i]) then
            redis.pcall('ZADD', notes, string.format('%.17g', noted[i + 1] % 1), noted[i])
        end
    end
end
