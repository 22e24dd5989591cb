-- Renews many holds at once.
--
-- KEYS[i]             a lock
-- ARGV[1]             the server time after which the request is refused, ms since 1970
-- ARGV[2i], ARGV[2i+1]  the visitor of KEYS[i] and its lease, ms
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  done; KEYS[i] was not renewed: what is 0 if nobody holds it, else whoever does
--
-- Keeps: only a key with the visitor's own field, or its own token, is given a new time to live.
local call, pcall = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[1] + 0 then
    return {now, 0}
end
local result = {now, 1}
local function lost(i, what)
    result[#result + 1] = i
    result[#result + 1] = what
end
for i = 1, #KEYS do
    local key = KEYS[i]
    local held = pcall('HEXISTS', key, ARGV[2 * i])
    if held == 1 then
        call('PEXPIRE', key, ARGV[2 * i + 1])
    elseif held == 0 then
        lost(i, call('HKEYS', key)[1] or 0)
    elseif string.find(held.err, 'WRONGTYPE', 1, true) then
        -- The key of a token lock is a string. A token has no colon; what else stands there is nobody's business.
        local visitor, token = ARGV[2 * i], pcall('GET', key)
        if token == visitor then
            call('PEXPIRE', key, ARGV[2 * i + 1])
        elseif type(token) == 'string' and not string.find(visitor, ':', 1, true) then
            lost(i, string.sub(token, 1, 64))
        else
            lost(i, 'a key of another type')
        end
    else
        return held
    end
end
return result
