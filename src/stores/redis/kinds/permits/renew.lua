-- Renews the leases of many owners of permits at once.
--
-- KEYS[2i-1]            a semaphore
-- KEYS[2i]              the owners of its permits
-- ARGV[2i-1], ARGV[2i]  the visitor of KEYS[2i] and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which comes before the answer: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  done; the i-th owner was not renewed: what is 0 if it owns nothing any more, or what a key
--                               has become. It was renewed if what is above 0: the semaphore ends in so many ms, before
--                               the lease
--
-- Keeps: only what is owned, of a semaphore that is there, is given a new end, also on a full server.

-- include keep_taken.lua

local number = ARGV[#ARGV] + 0
local call, pcall = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[#ARGV - 1] + 0 then
    return {number, {now, 0}}
end
local result = {now, 1}
for i = 1, #KEYS / 2 do
    local key, owners, visitor = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1]
    local has, free = pcall('ZSCORE', owners, visitor), pcall('GET', key)
    local flaw = type(has) == 'table' and has or type(free) == 'table' and free
    local what
    if flaw and not string.find(flaw.err, 'WRONGTYPE', 1, true) then
        return flaw
    elseif flaw or free and not string.find(free, '^%-?%d+$') then
        what = 'a key of another type'
    elseif not has or not free then
        what = 0
    else
        local life = call('PTTL', key)
        -- A full server takes this from anybody, and whatever comes behind it.
        pcall('ZREM', owners, '')
        call('ZADD', owners, string.format('%.0f', now + ARGV[2 * i]), visitor)
        keep_taken(owners, key, life)
        if life >= 0 and life < ARGV[2 * i] + 0 then
            what = math.max(life, 1)
        end
    end
    if what then
        result[#result + 1] = i
        result[#result + 1] = what
    end
end
return {number, result}
