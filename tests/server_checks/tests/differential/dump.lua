-- Returns all keys: of each its name, its type, its content and the ms that are left of it.
local found, keys = {}, redis.call('KEYS', '*')
table.sort(keys)
for _, key in ipairs(keys) do
    local kind, content = redis.call('TYPE', key).ok, nil
    if kind == 'string' then
        content = {redis.call('GET', key)}
    elseif kind == 'list' then
        content = redis.call('LRANGE', key, 0, -1)
    elseif kind == 'zset' then
        content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    elseif kind == 'set' then
        content = redis.call('SMEMBERS', key)
        table.sort(content)
    else
        local fields = redis.call('HGETALL', key)
        content = {}
        for at = 1, #fields, 2 do
            content[#content + 1] = fields[at] .. '\1' .. fields[at + 1]
        end
        table.sort(content)
    end
    found[#found + 1] = {key, kind, content, redis.call('PTTL', key)}
end
return found
