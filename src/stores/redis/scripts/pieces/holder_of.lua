-- Returns the holder of the lock (the first 128 bytes of its field), then nil and the whole field. Returns '' if the
-- lock is free; nil and an error if the hash is not a lock. For another type of key, the script fails. A lock is a hash
-- of one field `text:number` or `text:number:text` with a count. The form of a field of over 256 bytes is not checked.
local function holder_of(key)
    -- If the user has no right to HLEN, the fields are counted with HKEYS.
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
