-- Returns the start of the writer's field; without a writer, the start of a reader's field.
local function side_holder_of(key)
    local holder = ''
    for _, field in ipairs(redis.call('HKEYS', key)) do
        if field ~= 'mode' and (holder == '' or string.sub(field, -6) == ':write') then
            holder = string.sub(field, 1, 128)
        end
    end
    return holder
end
