-- Those who wait to write are noted in a hash beside the lock, each with when it came, µs, and until when it counts, ms. There
-- `phase` counts the writers that were in, `turned` is how long the farthest reader that was turned away needs to come, ms, and
-- `window` the time until which writers leave a free lock to readers. Notes cost no more than turns, so no error of theirs ends
-- a request, and times that are too far for any client to have noted stem from a clock that was set since, and do not count.

-- The writer that waits and came first, of those who came before, if that is said. Then all other notes, and when it came.
local function first_writer(notes, now, before)
    local fields, first, came, others = redis.pcall('HGETALL', notes), nil, before, {}
    for i = 1, #fields, 2 do
        local begun, ends = string.match(fields[i + 1], '^(%d+):(%d+)$')
        local left = ends and ends - now
        if not begun then
            others[fields[i]] = fields[i + 1]
        elseif left < -6000 then
            -- It is dead. One that was silent for less comes back to its place.
            redis.pcall('HDEL', notes, fields[i])
        elseif left > 0 and left <= 6000 and (not came or begun + 0 < came) then
            first, came = fields[i], begun + 0
        end
    end
    return first, others, came
end

-- For how long a free lock is still kept for readers, ms.
local function window_of(others, now)
    local rest = (tonumber(others.window) or 0) - now
    return rest > 0 and rest <= 1000 and rest or 0
end

-- Has notes stand for so long at least, and never for ever.
local function keep_notes(notes, life)
    local left = redis.pcall('PTTL', notes)
    if (type(left) == 'table' or left < life) and redis.pcall('PEXPIRE', notes, life) ~= 1 then
        redis.pcall('DEL', notes)
    end
end

-- Notes that a reader was turned away that waits and needs so long to come.
local function turn_away(notes, others, need)
    if need > 0 then
        if (tonumber(others.turned) or 0) < need then
            redis.pcall('HSET', notes, 'turned', need)
        end
        keep_notes(notes, 3000)
    end
end
