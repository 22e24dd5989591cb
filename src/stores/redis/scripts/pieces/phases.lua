-- Those who wait to write are noted in a hash beside the lock, each with when it came, µs, and until when it counts, ms. There
-- `phase` counts the writers that were in. A reader that waits is told behind which of them it comes. `turned` is how long the
-- farthest of those needs to come, ms, and how many they are; `window` is the time until which writers leave a free lock to them,
-- and `due` behind which writer that is, and how many have not come: the last of them ends it. Notes cost no more than turns, so
-- no error of theirs ends a request, and times that are too far for any client to have noted stem from a clock that was set
-- since, and do not count.

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

-- How many writers were in.
local function phase_of(others)
    return tonumber(others.phase) or 0
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

-- Notes that a reader was turned away that waits and needs so long to come, behind a writer of which it was not told since the
-- last one left the lock to readers.
local function turn_away(notes, others, need, behind, memo)
    if need > 0 then
        local longest, count = string.match(others.turned or '', '^(%d+),(%d+)$')
        local told, opened = tonumber(memo), tonumber(string.match(others.due or '', '^(%d+),%d+$')) or -1
        local more = (not count or not told or told ~= behind and told <= opened) and 1 or 0
        if more > 0 or longest + 0 < need then
            local noted = string.format('%.0f,%.0f', math.max(longest or 0, need), (count or 0) + more)
            redis.pcall('HSET', notes, 'turned', noted)
        end
        keep_notes(notes, 3000)
    end
end

-- Notes that a reader has come that was told to come behind a writer.
local function has_come(notes, others, behind)
    local opened, due = string.match(others.due or '', '^(%d+),(%d+)$')
    local longest, count = string.match(others.turned or '', '^(%d+),(%d+)$')
    if due and behind == opened + 0 and due + 0 > 0 then
        redis.pcall('HSET', notes, 'due', string.format('%s,%.0f', opened, due - 1))
        if due + 0 == 1 then
            redis.pcall('HDEL', notes, 'window')
        end
    elseif count and not (due and behind < opened + 0) then
        -- It was not waited for: the writer has given up, is dead, or is of Redisson, which counts no phase.
        if count + 0 > 1 then
            redis.pcall('HSET', notes, 'turned', string.format('%s,%.0f', longest, count - 1))
        else
            redis.pcall('HDEL', notes, 'turned')
        end
    end
end
