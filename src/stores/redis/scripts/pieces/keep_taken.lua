-- Has the notes of the permits that are taken end with the semaphore, or a few ms before it, whatever became of its end since:
-- without the notes no permit comes back, and behind that end they would give permits to the next semaphore of this name.
-- `life` is what is left of it, as PTTL has told.
local function keep_taken(taken, key, life)
    local pcall = redis.pcall
    local left = pcall('PTTL', taken)
    local function last(ms)
        -- What else may be there keeps its end.
        if type(pcall('ZSCORE', taken, '')) ~= 'table' then
            pcall('PEXPIRE', taken, string.format('%.0f', ms))
        end
        return pcall('PTTL', taken)
    end
    if type(life) ~= 'number' or type(left) ~= 'number' or left == -2 then
        return
    elseif life == -1 and left >= 0 then
        last(10000000000000)
    elseif life >= 0 then
        -- The clock goes on between two commands, and the process may be paused there. If the answer of the semaphore comes
        -- behind that of the notes, and is no less, they do not end later.
        for early = 0, 3 do
            local by = 10 ^ early
            life = math.min(pcall('PTTL', key), 10000000000000)
            if left == -2 or left >= life - 5 * by and left <= life and left ~= -1 then
                return
            end
            left = last(math.max(life - by, 0))
        end
    end
end

-- Takes the notes away of a semaphore that is gone, or is to go. What else may be there stays, and is the error returned.
local function forget_taken(taken)
    local flaw = redis.pcall('ZSCORE', taken, '')
    return type(flaw) == 'table' and flaw or redis.pcall('DEL', taken)
end

-- The end of a lease, as a score. The largest one is that of a permit without an end.
local function end_of(now, lease)
    return string.format('%.0f', math.min(now + lease, 922337203685477))
end

-- The arguments by which members of a set have an end.
local function scored(members, ends)
    local words = {}
    for i, member in ipairs(members) do
        words[2 * i - 1], words[2 * i] = ends, member
    end
    return words
end
