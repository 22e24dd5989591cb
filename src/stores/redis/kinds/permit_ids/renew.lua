-- Renews the leases of the permits of many handles at once.
--
-- KEYS[2i-1]            a semaphore
-- KEYS[2i]              the ids of its permits that were taken
-- ARGV[2i-1], ARGV[2i]  the visitor of KEYS[2i], the ids of its permits, and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which comes before the answer: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  done; the i-th handle was not renewed: what is 0 if it lacks a permit, or what a key has
--                               become. It was renewed if what is above 0: the semaphore ends in so many ms, before the
--                               lease
--
-- Keeps: only what is taken, of a semaphore that is there, is given a new end, also on a full server.

-- include id_of.lua
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
    local key, taken, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i] + 0
    local ends = string.format('%.0f', math.min(now + lease, 922337203685477))
    local members, flaw, what = {}, nil, nil
    for hex in string.gmatch(ARGV[2 * i - 1], string.rep('%x', 32)) do
        local id = id_of(hex)
        local has = pcall('ZSCORE', taken, id)
        if type(has) == 'table' then
            flaw = has
        elseif not has then
            what = 0
        end
        members[#members + 1], members[#members + 2] = ends, id
    end
    local free = pcall('GET', key)
    flaw = flaw or type(free) == 'table' and free
    if flaw and not string.find(flaw.err, 'WRONGTYPE', 1, true) then
        return flaw
    elseif flaw or free and not string.find(free, '^%-?%d+$') then
        what = 'a key of another type'
    elseif not free then
        what = 0
    elseif not what then
        local life = call('PTTL', key)
        -- A full server takes this from anybody, and whatever comes behind it.
        pcall('ZREM', taken, '')
        call('ZADD', taken, unpack(members))
        keep_taken(taken, key, life)
        if life >= 0 and life < lease then
            what = math.max(life, 1)
        end
    end
    if what then
        result[#result + 1] = i
        result[#result + 1] = what
    end
end
return {number, result}
