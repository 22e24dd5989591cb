-- Renews many holds at once.
--
-- KEYS[i]               a lock
-- ARGV[2i-1], ARGV[2i]  the visitor of KEYS[i] and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which comes before the answer: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  done; KEYS[i] was not renewed: what is 0 if nobody holds it, else whoever does
--
-- Keeps: only a key with the visitor's own field is given a new time to live.

-- Who has the lock: the start of the field, nil and the field; '' for nobody; nil and an error for what is no lock. A lock
-- is a hash of one field, `text:number` and perhaps more, and a count. A field longer than any visitor is not looked into.
local function holder_of(key)
    -- A user without the right to HLEN gets the names of all fields.
    local size, fields = redis.pcall('HLEN', key), {}
    if size == 1 or type(size) == 'table' then
        fields = redis.call('HKEYS', key)
        size = #fields
    end
    local field = fields[1] or ''
    if size == 0 then
        return ''
    elseif size == 1 and (#field > 256 or string.find(field, '.:%d+$') or string.find(field, '.:%d+:.'))
        and string.find(redis.call('HGET', key, field), '^%d+$') then
        return string.sub(field, 1, 128), nil, field
    end
    return nil, redis.error_reply('WRONGTYPE this hash is no lock, or one of another kind')
end

local number = ARGV[#ARGV] + 0
local call, pcall = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[#ARGV - 1] + 0 then
    return {number, {now, 0}}
end
local result = {now, 1}
for i = 1, #KEYS do
    local key = KEYS[i]
    local has = pcall('HEXISTS', key, ARGV[2 * i - 1])
    if has == 1 then
        call('PEXPIRE', key, ARGV[2 * i])
    else
        local what = 'a key of another type'
        if has == 0 then
            local holder = holder_of(key)
            what = holder == '' and 0 or holder or what
        elseif not string.find(has.err, 'WRONGTYPE', 1, true) then
            return has
        end
        result[#result + 1] = i
        result[#result + 1] = what
    end
end
return {number, result}
