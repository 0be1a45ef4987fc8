with settings as (
    select account_data.user_id, try_parse_json({{ readable_json('account_data.content') }}) as content
    from {{ source('synapse', 'account_data') }} as account_data
    inner join {{ source('synapse', 'users') }} as users on account_data.user_id = users.name
    where account_data.account_data_type = 'io.element.synapse.admin_client_config' and users.admin = 1
),

options as (
    select
        user_id,
        {{ json_truth('content', 'return_soft_failed_events') }} as soft_failed,
        case when {{ has_rule('policy_server_option') }}
            then {{ json_truth('content', 'return_policy_server_spammy_events') }}
        end as policy_server_spammy
    from settings
    where {{ has_rule('soft_failed_option') }}
),

-- The soft-failed option also includes events that a policy server marked as spam.
resolved_options as (
    select
        user_id,
        coalesce(soft_failed, false) as sees_soft_failed,
        coalesce(soft_failed, false) or coalesce(policy_server_spammy, soft_failed, false) as sees_policy_server_spammy
    from options
)

select user_id, sees_soft_failed, sees_policy_server_spammy
from resolved_options
where sees_policy_server_spammy
