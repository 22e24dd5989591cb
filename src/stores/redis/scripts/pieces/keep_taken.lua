-- Makes the set of taken permits expire with the semaphore, or slightly earlier. If the set expired much earlier, its
-- permits would never be returned. If it expired later, its permits would be returned to the next semaphore of this name.
-- `life` is the PTTL of the semaphore.
local function keep_taken(taken, key, life)
    local pcall = redis.pcall
    local left = pcall('PTTL', taken)
    local function last(ms)
        -- A key of another type keeps its TTL.
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
        -- Time passes between two commands. So the PTTL of the semaphore is read after the PTTL of the set. If the PTTL of
        -- the semaphore is not smaller, the set expires no later than the semaphore.
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

-- Deletes the set of taken permits of a semaphore that is gone or is being deleted. If the key of the set has another
-- type, returns the error and deletes nothing.
local function forget_taken(taken)
    local flaw = redis.pcall('ZSCORE', taken, '')
    return type(flaw) == 'table' and flaw or redis.pcall('DEL', taken)
end

-- Returns the expiry of a lease as a score. The largest score stands for a permit without an expiry.
local function end_of(now, lease)
    return string.format('%.0f', math.min(now + lease, 922337203685477))
end

-- Returns arguments for ZADD: each member with the score `ends`.
local function scored(members, ends)
    local words = {}
    for i, member in ipairs(members) do
        words[2 * i - 1], words[2 * i] = ends, member
    end
    return words
end
