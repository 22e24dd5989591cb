-- Those who wait for a read-write lock are noted in a sorted set beside it, by when they came, ms, with their last looks. A note
-- ends 3 s behind the last look. A writer that leaves sets the times to 0 of those who wait to read. Notes cost no more than
-- turns, so no error of theirs ends a request.

-- include looks.lua

-- The first who waits and came before a visitor, for a reader of those who write alone; false if nobody did. Behind the first 32
-- nobody is looked for: so many readers have their turn, and a few more may come along.
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

-- Notes that a visitor waits, and looks now.
local function note_wait(notes, visitor, now)
    local came = redis.pcall('ZSCORE', notes, visitor)
    local noted = redis.pcall('ZADD', notes, time_of(type(came) == 'string' and came or now, now), visitor)
    if type(noted) ~= 'table' and redis.pcall('PEXPIRE', notes, 9000) ~= 1 then
        redis.pcall('DEL', notes)
    end
end

-- Has those who wait to read come before all who wait to write.
local function let_readers_in(notes)
    local noted = redis.pcall('ZRANGE', notes, 0, -1, 'WITHSCORES')
    for i = 1, #noted, 2 do
        if not is_writer(noted[i]) then
            redis.pcall('ZADD', notes, string.format('%.17g', noted[i + 1] % 1), noted[i])
        end
    end
end
